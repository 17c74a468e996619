"""Each strategy where it turns bad: the smallest run that shows it, beside one that does not."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import NamedTuple

from benchmarks.promise import END, Ending
from benchmarks.textbook.part import SIMULATED, Part, Table, ms, percent
from benchmarks.textbook.runs import COST, MS, ROOM, SECOND, STEPS, Served, ask, counted, serve
from headway.core.lane import Budget, Lane
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed
from headway.core.policies.defer import WithoutDeadline
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.memory import Ahead
from headway.core.policies.mix import Alternate, PrefillFirst
from headway.core.policies.order import Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.policies.relegate import Hopeless
from headway.core.request import Request
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate
from headway.strategies.registry import by_budgets

LANES = (Lane("chat", priority=0), Lane("bulk", priority=1))
# The same for the strategies that go by budgets: bulk has none.
TIMED = (Lane("chat", Budget(ttft=SECOND, tpot=50 * MS), 0), LANES[1])


class Finding(NamedTuple):
    key: str
    run: str  # strategy: what was run; what is run instead
    here: float  # nanoseconds, or a share
    instead: float
    is_share: bool = False


def grouped(join: Join) -> Policies:
    return Policies(join, mix=PrefillFirst(), step_tokens=ROOM)


def chunked(slots: int, size: int = 512) -> Policies:
    return Policies(Continuous(slots), chunk=Fixed(size), step_tokens=slots + size)


def first_wait(served: Served) -> float:
    return mean(row.ttft for row in served.requests.values())


def slow() -> list[Finding]:
    """One by one; exactly sixteen; until the longest ends."""
    burst = [ask(i, 64, 64) for i in range(16)]
    alone, joined = serve(burst, Policies(Continuous(1))), serve(burst, chunked(16))
    spread = [ask(i, 64, 16, i * 2 * SECOND) for i in range(16)]
    late, soon = serve(spread, grouped(Static(16))), serve(spread, chunked(16))
    uneven = [ask(i, 64, 512 if i == 0 else 16) for i in range(16)]
    lopsided = serve(uneven, grouped(Static(16)), cost=STEPS)
    even = serve([ask(i, 64, 47) for i in range(16)], grouped(Static(16)), cost=STEPS)
    kept, told = serve(uneven, grouped(Static(16, together=True))), serve(uneven, chunked(16))
    shares = [run.held / (run.held + run.tokens) for run in (lopsided, even)]
    return [
        Finding(
            "alone",
            "one by one: 16 at once: last answer ends; continuous",
            alone.nanoseconds,
            joined.nanoseconds,
        ),
        Finding(
            "unfilled",
            "static: one every 2 s, groups of 16: TTFT of the first; continuous",
            late.requests["default-0"].ttft,
            soon.requests["default-0"].ttft,
        ),
        Finding(
            "lopsided",
            "static: 15 answers of 16 tokens, one of 512: held share; all of 47",
            shares[0],
            shares[1],
            True,
        ),
        Finding(
            "kept",
            "static, held to the end: the same: mean TTFT; continuous",
            first_wait(kept),
            first_wait(told),
        ),
    ]


def windowed() -> list[Finding]:
    """Buckets, windows, length classes."""
    odd = [ask(i, 129, 1) for i in range(16)]
    wide = serve(odd, grouped(Static(16, (128, 256, 512))), cost=STEPS)
    tight = serve(odd, grouped(Static(16)), cost=STEPS)
    padded = [run.padding / (run.padding + run.tokens) for run in (wide, tight)]
    pair = [ask(i, 64, 16, i * 900 * MS, ("chat", "bulk")[i % 2]) for i in range(40)]
    hostage = serve(pair, grouped(Dynamic(16, 5 * SECOND)), LANES)
    free = serve(pair, grouped(Dynamic(16, 5 * SECOND, {"chat": 0})), LANES)
    behind = [ask(0, 64, 500, 0, "bulk"), ask(1, 64, 16, 20 * MS, "chat")]
    blocked = serve(behind, grouped(Dynamic(16, 0)), LANES)
    passed = serve(behind, chunked(16), LANES)
    flow = [ask(i, 32, 8, i * 100 * MS) for i in range(100)]
    rare = sorted([*flow, ask(100, 400, 8, SECOND)], key=lambda request: request.arrived)
    classes = serve(rare, Policies(LengthClasses(8, (64,), 5 * SECOND), step_tokens=ROOM))
    together = serve(rare, grouped(Dynamic(8, 5 * SECOND)))
    return [
        Finding(
            "buckets",
            "static, buckets: 16 prompts of 129: padding; no buckets",
            padded[0],
            padded[1],
            True,
        ),
        Finding(
            "hostage",
            "dynamic, one window: window 5 s, sparse: TTFT of chat; its own window 0",
            mean(row.ttft for row in hostage.requests.values() if row.lane == "chat"),
            mean(row.ttft for row in free.requests.values() if row.lane == "chat"),
        ),
        Finding(
            "behind",
            "dynamic, a window each: window 0 behind a running group: TTFT; continuous",
            blocked.requests["chat-1"].ttft,
            passed.requests["chat-1"].ttft,
        ),
        Finding(
            "rare",
            "length classes: a rare long prompt, window 5 s: TTFT; one class",
            classes.requests["default-100"].ttft,
            together.requests["default-100"].ttft,
        ),
    ]


def stalled() -> list[Finding]:
    """Prompts that keep coming, and one that is long, beside an answer under way."""
    stream = [ask(0, 64, 150), *(ask(i, 1000, 4, (i + 5) * 30 * MS) for i in range(1, 60))]
    ways: dict[str, Policies] = {
        "prefill": Policies(Continuous(64), mix=PrefillFirst(), step_tokens=ROOM),
        "alternate": Policies(Continuous(64), mix=Alternate(), step_tokens=ROOM),
        "whole": Policies(Continuous(64), step_tokens=ROOM),
        "chunks": chunked(64, 256),
    }
    runs = {name: serve(stream, way) for name, way in ways.items()}
    worst = {name: max(run.gaps("default-0")) for name, run in runs.items()}
    pace = {name: run.requests["default-0"].tpot for name, run in runs.items()}
    long = [*(ask(i, 64, 400) for i in range(8)), ask(8, 8192, 4, SECOND)]
    tiny, whole = serve(long, chunked(16, 32)), serve(long, ways["whole"])
    said = "1,000 tokens every 30 ms"
    return [
        Finding(
            "prefill",
            f"prefill first: {said}: longest gap under way; chunks of 256",
            worst["prefill"],
            worst["chunks"],
        ),
        Finding(
            "alternate",
            f"alternating: {said}: TPOT under way; chunks of 256",
            pace["alternate"],
            pace["chunks"],
        ),
        Finding(
            "whole",
            "mixed, whole prompts: 8,192 tokens arrive: longest gap; chunks of 32",
            max(whole.gaps("default-0")),
            max(tiny.gaps("default-0")),
        ),
        Finding(
            "tiny",
            "mixed, chunks of 32: the same: TTFT of the long prompt; whole",
            tiny.requests["default-8"].ttft,
            whole.requests["default-8"].ttft,
        ),
    ]


def starved() -> list[Finding]:
    """Requests that are passed over while preferred ones keep coming."""
    short = [ask(i, 32, 16, i * 25 * MS, "chat") for i in range(1, 400)]
    long = [ask(0, 32, 64, 900 * MS, "bulk")]
    both: Sequence[Request] = sorted([*short, *long], key=lambda request: request.arrived)
    ways = {
        "fair": chunked(4),
        "shortest": Policies(Continuous(4), ShortestFirst(), chunk=Fixed(512), step_tokens=516),
        "priority": Policies(Continuous(4), Priority(), chunk=Fixed(512), step_tokens=516),
    }
    runs = {name: serve(both, way, LANES) for name, way in ways.items()}
    wait = {name: run.requests["bulk-0"].ttft for name, run in runs.items()}
    said = "a stream that fills 4 slots: TTFT of the one passed over; first come"
    return [
        Finding("shortest", f"shortest first: {said}", wait["shortest"], wait["fair"]),
        Finding("priority", f"priority: {said}", wait["priority"], wait["fair"]),
    ]


def budgeted() -> list[Finding]:
    """The parts of `budgets`, each alone."""
    plain = chunked(64)
    crowd = [ask(i, 1_000, 4, i * 20 * MS, "chat") for i in range(1, 500)]
    by_deadline = replace(plain, order=ByDeadline())
    filler = replace(plain, order=Priority(), preempt=ByLane(), defer=WithoutDeadline())
    long_first = [ask(i, 8_000, 4, SECOND, "bulk") for i in range(1, 21)]
    cases = (  # what is looked at, the two ways to serve, what they are offered, what is said
        (
            "deadline",
            (by_deadline, plain),
            with_one(crowd, 8_000, 4),
            "deadline order: overload: TTFT of 8,000 tokens among 1,000s; first come",
        ),
        (
            "slack",
            (replace(plain, chunk=BySlack()), replace(by_deadline, chunk=BySlack())),
            with_one(long_first, 64, 4),
            "slack steps: 20 prompts of 8,000 came before: TTFT; by deadline, too",
        ),
        (
            "relegated",
            (replace(plain, relegate=Hopeless()), plain),
            with_one(crowd, 60_000, 4),
            "relegation: overload: TTFT of one that is late in any case; in its place",
        ),
        (
            "filler",
            (filler, plain),
            with_one(crowd, 64, 400, "bulk"),
            "filler: overload: an offline answer of 400 tokens ends; first come",
        ),
    )
    found: list[Finding] = []
    for key, ways, offered, said in cases:
        runs = [counted(offered, way, TIMED) for way in ways]
        here, there = (
            run.requests["bulk-0"].e2e if key == "filler" else run.requests["chat-0"].ttft
            for run in runs
        )
        found.append(Finding(key, said, here, there))
    return [*found, paused(), unused()]


def paused() -> Finding:
    """Budgets: an answer that is ahead of its TPOT misses steps while prompts keep coming."""
    prompts = [ask(i, 1_000, 4, SECOND + i * 30 * MS, "chat") for i in range(1, 266)]
    offered = [ask(0, 64, 400, 0, "chat"), *prompts]
    ways = by_budgets(64), replace(by_budgets(64), defer=WithoutDeadline())
    runs = [serve(offered, way, TIMED) for way in ways]
    assert all(row.good for run in runs for row in run.requests.values())
    said = "budgets: 1,000 tokens every 30 ms: longest gap, TPOT kept; no missed steps"
    here, there = (max(run.gaps("chat-0")) for run in runs)
    return Finding("paused", said, here, there)


def unused() -> Finding:
    """Memory ahead: answers end long before the length that callers expect, which it counts on."""
    answers = [ask(i, 64, 64) for i in range(64)]
    ends = Sampling(stop_tokens=frozenset({END}))
    said = [replace(each, max_tokens=2_000, expected=2_000, sampling=ends) for each in answers]
    took: list[int] = []
    for way in (replace(chunked(64), memory=Ahead()), chunked(64)):
        scheduler = Scheduler(Settings(1_000, policies=way, cost=COST))
        simulate(scheduler, arrivals(said), COST, Ending(answers))
        scheduler.check()
        took.append(max(row.finished for row in scheduler.ledger.requests))
    run = "memory ahead: 64 answers of 64 tokens, 2,000 expected: last answer ends; now"
    return Finding("ahead", run, took[0], took[1])


def with_one(
    others: Sequence[Request], prompt: int, answer: int, lane: str = "chat"
) -> list[Request]:
    """And one that comes a second after the first."""
    both = [*others, ask(0, prompt, answer, SECOND, lane)]
    return sorted(both, key=lambda request: request.arrived)


def pathologies() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    for found in [*slow(), *windowed(), *stalled(), *starved(), *budgeted()]:
        both = (found.here, found.instead)
        scale = 100 if found.is_share else 1e-6
        figures |= {found.key: found.here * scale, f"{found.key}_instead": found.instead * scale}
        shown = [percent(each) if found.is_share else f"{ms(each)}\u00a0ms" for each in both]
        rows.append([found.run, *shown])
    return Part(SIMULATED, [Table(["run; instead", "here", "instead"], rows)], figures)
