"""Run a scheduler over a trace, in no time."""

from collections.abc import Callable, Iterable

from headway.core.batch import Command, Event
from headway.core.cost import StepCost
from headway.core.scheduler import Scheduler
from headway.engine import Engine, Executor
from headway.journal import Record
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox


def simulate(
    scheduler: Scheduler,
    timed: Iterable[tuple[int, Command]],
    cost: StepCost,
    executor: Executor | None = None,
    keep: Callable[[Record], object] = lambda record: None,
) -> list[Event]:
    clock = VirtualClock()
    inbox = TraceInbox(timed, clock)
    engine = Engine(scheduler, PricedExecutor(cost, clock, executor), inbox, clock, keep)
    events = []
    while not scheduler.finished:
        events += engine.step()
    return events
