"""The engine in virtual time: the same loop, with the host's time behind each step charged."""

from functools import partial

from headway.core.batch import Event
from headway.core.scheduler import Scheduler
from headway.engine import Engine, Executor, forgotten
from headway.sim.clock import VirtualClock
from headway.sim.coast import Coast
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox


class VirtualEngine(Engine):
    """Steps in which nothing is to be decided are taken in one go, if `coasting`: exactly as they
    would have been one by one (tests/sim/test_coast.py), but for their events, which come
    together. Only where all tokens are the Filler's."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        inbox: TraceInbox,
        clock: VirtualClock,
        priced: PricedExecutor,
        coasting: bool = False,
    ) -> None:
        """priced: that the executor is, or passes its batches on to."""
        super().__init__(scheduler, executor, inbox, clock)
        self._priced, self._trace, self._time, self._coasting = priced, inbox, clock, coasting

    def step(self) -> list[Event]:
        # Whoever keeps a journal wants every step's record.
        events = self._coast() if self._coasting and self.keep is forgotten else []
        events += super().step()
        self._priced.settle()
        return events

    def _coast(self) -> list[Event]:
        clock, events = self._time, list[Event]()
        until = min(self._trace.next_at, self.scheduler.roster.deadlines.next)
        if not self.scheduler.roster.running or until <= clock.now():
            return events
        coast, glide = Coast(self.scheduler, clock.now()), self._priced.glide
        features = partial(coast.features, gathering=self._priced.cost.gathering)
        while coast.is_steady and (ahead := coast.ahead) and clock.now() < until:
            events += coast.take(glide(ahead, features, until))
        return events + coast.close()
