"""The engine in virtual time (VirtualEngine): the same loop, plus the host's time after a step."""

from functools import partial

from headway.core.batch import Event
from headway.core.scheduler import Scheduler
from headway.engine import Engine, Executor, forgotten
from headway.sim.clock import VirtualClock
from headway.sim.coast import Coast
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox


class VirtualEngine(Engine):
    """With `coasting`, steps in which nothing is to be decided are taken at once (`Coast`).

    The result is the same as step by step (tests/sim/test_coast.py), but the events of such steps
    come together. Only for runs whose tokens are all the Filler's.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        inbox: TraceInbox,
        clock: VirtualClock,
        priced: PricedExecutor,
        coasting: bool = False,
    ) -> None:
        """priced: the executor itself, or the one that it passes its batches on to."""
        super().__init__(scheduler, executor, inbox, clock)
        self._priced, self._trace, self._time = priced, inbox, clock
        self._coasting = coasting and scheduler.settings.depth == 1

    def step(self) -> list[Event]:
        # A journal gets a record of every step, so then there is no coasting.
        events = self._coast() if self._coasting and self.keep is forgotten else []
        events += super().step()
        self._priced.settle()
        return events

    def _coast(self) -> list[Event]:
        clock = self._time
        events: list[Event] = []
        until = min(self._trace.next_at, self.scheduler.roster.deadlines.next)
        if not self.scheduler.roster.running or until <= clock.now():
            return events
        coast, glide = Coast(self.scheduler, clock.now()), self._priced.glide
        features = partial(coast.features, gathering=self._priced.cost.gathering)
        while coast.is_steady and (ahead := coast.ahead) and clock.now() < until:
            if not (times := glide(ahead, features, until, coast.has_time)):
                break
            events += coast.take(times)
        return events + coast.close()
