"""The engine in virtual time (VirtualEngine): the same loop, plus the host time after a step."""

from functools import partial

from headway.core.batch import Event
from headway.core.scheduler import Scheduler
from headway.engine import Engine, Executor, forgotten
from headway.sim.clock import VirtualClock
from headway.sim.coast import Coast
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox


class VirtualEngine(Engine):
    """An engine in virtual time. With `coasting`, it takes steps with nothing to decide at once.

    The result is the same as step by step (tests/sim/test_coast.py), but the events of such steps
    come together (`Coast`). Coasting is only for runs where Filler makes all the tokens.
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
        """priced: the executor itself, or the PricedExecutor to which it passes its batches."""
        super().__init__(scheduler, executor, inbox, clock)
        self._priced, self._trace, self._time = priced, inbox, clock
        self._coasting = coasting and scheduler.settings.depth == 1

    def step(self) -> list[Event]:
        # A journal needs a record of every step, so an engine with a journal does not coast.
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
