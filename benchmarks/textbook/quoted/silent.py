"""Code that does nothing: a generator that is never read, an answer that is never cancelled."""

from collections.abc import Iterator

from benchmarks.textbook.part import ARITHMETIC, Part, Table
from benchmarks.textbook.runs import STEPS, ask
from headway.core.commands import Add, Cancel, Close
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor

TOKENS, LEAVES, PROMPT = 500, 10, 32


def answered(started: list[int]) -> Iterator[int]:
    """A generator: its body begins when the first value is asked for."""
    started.append(1)
    yield 1


def computed(cancelling: bool) -> tuple[int, int]:
    """Answer tokens computed for a caller that leaves after ten, and its blocks afterwards."""
    scheduler = Scheduler(Settings(200, policies=Policies()))
    executor = PricedExecutor(STEPS, VirtualClock())
    scheduler.apply([Add(ask(0, PROMPT, TOKENS)), Close()], 0)
    heard, held = 0, 0
    while not scheduler.finished:
        batch = scheduler.schedule(0)
        events = scheduler.commit(batch, executor.collect(executor.submit(batch)), 0)
        heard += sum(len(event.tokens) for event in events)
        if heard == LEAVES:
            if cancelling:
                scheduler.apply([Cancel("default-0")], 0)
            held = 200 - scheduler.pool.num_free
    scheduler.check()
    return heard, held


def silent() -> Part:
    started = list[int]()
    unread = answered(started)
    before = len(started)
    next(unread)
    kept, held = computed(cancelling=False)
    left, freed = computed(cancelling=True)
    figures: dict[str, float] = {"unread": before, "read": len(started), "kept": kept}
    figures |= {"left": left, "held": held, "freed": freed}
    rows = [
        ["a generator is called: how often its body has begun", f"{before}"],
        ["its first value is asked for", f"{len(started)}"],
        ["a caller leaves after 10 of 500 tokens, a flag is set: tokens computed", f"{kept}"],
        ["it leaves, and the request is cancelled: tokens computed", f"{left}"],
        ["blocks it holds after leaving, flag only", f"{held}"],
        ["blocks it holds after leaving, cancelled", f"{freed}"],
    ]
    return Part(ARITHMETIC, [Table(["what is done", "count"], rows)], figures)
