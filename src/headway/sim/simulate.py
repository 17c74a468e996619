"""Run a scheduler over a trace in virtual time (simulate)."""

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
    """Run the trace to its end. Returns all events; the rows are in the scheduler's ledger.

    timed: commands in order of time. executor: makes the tokens; None: all tokens are 0, and steps
    with nothing to decide are taken at once. seed: for the random residuals of the step times;
    None: each step takes its predicted time.
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
    """Run without garbage collection: a simulation makes no cycles and saves a sixth of its
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
