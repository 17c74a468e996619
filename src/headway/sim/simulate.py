"""Run a scheduler over a trace, in no time."""

from collections.abc import Callable, Iterable

from headway.core.batch import Command, Event
from headway.core.cost import StepCost
from headway.core.scheduler import Scheduler
from headway.engine import Executor
from headway.journal import Record
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox


def simulate(
    scheduler: Scheduler,
    timed: Iterable[tuple[int, Command]],
    cost: StepCost,
    executor: Executor | None = None,
    keep: Callable[[Record], object] = lambda record: None,
    seed: int | None = None,
) -> list[Event]:
    """seed: of the steps' residuals; none: each step takes what it is predicted to."""
    clock = VirtualClock()
    inbox, priced = TraceInbox(timed, clock), PricedExecutor(cost, clock, executor, seed)
    engine = VirtualEngine(scheduler, priced, inbox, clock, priced, keep)
    events = []
    while not scheduler.finished:
        events += engine.step()
    return events
