"""The engine in virtual time: the same loop, with the host's time behind each step charged."""

from collections.abc import Callable

from headway.core.batch import Event
from headway.core.scheduler import Scheduler
from headway.engine import Engine, Executor, Inbox
from headway.journal import Record
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor


class VirtualEngine(Engine):
    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        inbox: Inbox,
        clock: VirtualClock,
        priced: PricedExecutor,
        keep: Callable[[Record], object] = lambda record: None,
    ) -> None:
        """priced: that the executor is, or passes its batches on to."""
        super().__init__(scheduler, executor, inbox, clock, keep)
        self._priced = priced

    def step(self) -> list[Event]:
        events = super().step()
        self._priced.settle()
        return events
