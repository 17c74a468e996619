"""Run a scheduler over a trace, in no time."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headway.core.batch import Event
from headway.core.commands import Command
from headway.core.cost.step_cost import StepCost
from headway.core.scheduler import Scheduler
from headway.engine import Executor
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox


def simulate(
    scheduler: Scheduler,
    timed: Iterable[tuple[int, Command]],
    cost: StepCost,
    executor: Executor | None = None,
    seed: int | None = None,
) -> list[Event]:
    """What callers were told; the ledger is the scheduler's.

    timed: in order of time. executor: that says the tokens; none: all are 0, and steps in which
    nothing is decided are skipped over. seed: of the steps' residuals; none: each step takes what
    it is predicted to.
    """
    clock = VirtualClock()
    inbox, priced = TraceInbox(timed, clock), PricedExecutor(cost, clock, executor, seed)
    engine = VirtualEngine(scheduler, priced, inbox, clock, priced, coasting=executor is None)
    events = []
    with uncollected():
        while not scheduler.finished:
            events += engine.step()
    return events


@contextmanager
def uncollected() -> Iterator[None]:
    """Without looking for cycles, of which a simulation makes none: a sixth of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
