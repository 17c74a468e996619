"""The eight requests, the strategies that serve them, and a drawing of each run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.textbook.canvas import Canvas
from benchmarks.textbook.part import SIMULATED, Part, Table
from benchmarks.textbook.runs import MS, ROOM, Served, serve
from headway.core.batch import Batch, Row
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.request import Request

FOLDER = Path("docs/diagrams")
TOY = StepCost.of(4 * MS, per_token=MS // 4, per_pair=0)
SLOTS, CHUNK, WINDOW, BUCKETS = 4, 16, 30 * MS, (16, 32, 64)
LANES = (Lane("chat", priority=0), Lane("bulk", priority=1))
# lane, prompt, answer, arrival in milliseconds
ASKS = {
    "A": ("bulk", 24, 5, 0),
    "B": ("chat", 8, 3, 0),
    "C": ("bulk", 16, 12, 3),
    "D": ("chat", 8, 4, 40),
    "E": ("bulk", 60, 4, 45),
    "F": ("bulk", 20, 9, 50),
    "G": ("chat", 14, 6, 54),
    "H": ("bulk", 8, 3, 62),
}
STRATEGIES: dict[str, tuple[str, Policies]] = {
    "one-by-one": ("One by one", Policies(Continuous(1), step_tokens=ROOM)),
    "static": ("Static: groups of 4", Policies(Static(SLOTS), step_tokens=ROOM)),
    "static-together": (
        "Static, answers held until the group ends",
        Policies(Static(SLOTS, together=True), step_tokens=ROOM),
    ),
    "static-buckets": (
        "Static, padded up to 16, 32 or 64",
        Policies(Static(SLOTS, BUCKETS), step_tokens=ROOM),
    ),
    "dynamic": (
        "Dynamic: up to 4, one window of 30 ms for all",
        Policies(Dynamic(SLOTS, WINDOW), step_tokens=ROOM),
    ),
    "dynamic-windows": (
        "Dynamic: chat waits 2 ms at most, bulk 30 ms",
        Policies(Dynamic(SLOTS, WINDOW, {"chat": 2 * MS}), step_tokens=ROOM),
    ),
    "length-classes": (
        "Length classes: prompts up to 12 tokens apart from longer ones, window 30 ms",
        Policies(LengthClasses(SLOTS, (12,), WINDOW), step_tokens=ROOM),
    ),
    "prefill-first": (
        "Continuous, prompts first",
        Policies(Continuous(SLOTS), mix=PrefillFirst(), step_tokens=ROOM),
    ),
    "alternating": (
        "Continuous, prompts and decoding in turn",
        Policies(Continuous(SLOTS), mix=Alternate(), step_tokens=ROOM),
    ),
    "mixed-whole": (
        "Continuous, mixed steps, whole prompts",
        Policies(Continuous(SLOTS), mix=Mixed(), chunk=Whole(), step_tokens=ROOM),
    ),
    "mixed-chunks": (
        "Continuous, mixed steps, 16 prompt tokens a step",
        Policies(Continuous(SLOTS), chunk=Fixed(CHUNK), step_tokens=SLOTS + CHUNK),
    ),
    "shortest-first": (
        "Continuous, chunks of 16, shortest first",
        Policies(Continuous(SLOTS), ShortestFirst(), chunk=Fixed(CHUNK), step_tokens=20),
    ),
    "priority": (
        "Continuous, chunks of 16, chat before bulk",
        Policies(Continuous(SLOTS), Priority(), chunk=Fixed(CHUNK), step_tokens=20),
    ),
}


def requests() -> list[Request]:
    return [
        Request(name, (at,) * prompt, answer, arrived * MS, lane)
        for at, (name, (lane, prompt, answer, arrived)) in enumerate(ASKS.items())
    ]


def run(policies: Policies) -> Served:
    assert policies.order == FirstCome() or isinstance(policies.join, Continuous)
    return serve(requests(), policies, LANES, cost=TOY, spied=True)


@dataclass(frozen=True, slots=True)
class Bar:
    """What one request does for a while. Times are nanoseconds."""

    request: str
    kind: str  # queued, stalled, prompt, decode, padding, held
    began: int
    ended: int


def bars(served: Served) -> Iterator[Bar]:
    names = list(ASKS)
    for row in served.requests.values():
        yield Bar(row.id, "queued", row.arrived, row.first_scheduled)
    for batch, step in zip(served.batches, served.steps, strict=True):
        end = step.began + step.nanoseconds
        within = set[str]()
        for share in batch.rows:
            name = names[share.sequence]
            within.add(name)
            yield from computed(name, share, batch, step)
        group = {served.requests[name].first_scheduled for name in within}
        for row in served.requests.values():
            if row.id in within or row.first_scheduled > step.began:
                continue
            if last_computed(served, row) > step.began:
                yield Bar(row.id, "stalled", step.began, end)
            elif batch.held and row.first_scheduled in group:
                yield Bar(row.id, "held", step.began, end)


def computed(name: str, row: Row, batch: Batch, step: StepRow) -> Iterator[Bar]:
    """Its own cells, and those of the rectangle behind them."""
    end = step.began + step.nanoseconds
    kind = "prompt" if row.start < ASKS[name][1] else "decode"
    own = step.began + step.nanoseconds * len(row.tokens) // max(batch.width, len(row.tokens))
    yield Bar(name, kind, step.began, own)
    if own < end:
        yield Bar(name, "padding", own, end)


def last_computed(served: Served, row: RequestRow) -> int:
    """End of the last step that it was in; its caller may hear of it later."""
    number = list(ASKS).index(row.id)
    ends = [
        step.began + step.nanoseconds
        for batch, step in zip(served.batches, served.steps, strict=True)
        if any(each.sequence == number for each in batch.rows)
    ]
    return ends[-1]


def facts(served: Served) -> tuple[str, ...]:
    """Steps, milliseconds, share of cells for nobody, mean TTFTs of all and chat, longest gap."""
    waste = (served.padding + served.held) / (served.padding + served.held + served.tokens)
    waits = [row.ttft for row in served.requests.values()]
    chats = [row.ttft for row in served.requests.values() if row.lane == "chat"]
    gap = max(gap for name in ASKS for gap in served.gaps(name))
    times = [f"{time / MS:.0f}" for time in (mean(waits), mean(chats), gap)]
    return str(len(served.steps)), f"{served.nanoseconds / MS:.0f}", f"{waste:.0%}", *times


def caption(served: Served) -> str:
    steps, whole, waste, wait, chat, gap = facts(served)
    return (
        f"{steps} steps, {whole} ms; {waste} of the cells for nobody; mean TTFT {wait} ms, "
        f"chat's {chat} ms; longest gap between tokens {gap} ms"
    )


def pictures() -> Part:
    """A row for each picture."""
    rows = [[title, *facts(run(policies))] for title, policies in STRATEGIES.values()]
    head = ["eight requests, four slots", "steps", "ms", "cells for nobody", "mean TTFT, ms"]
    return Part(SIMULATED, [Table([*head, "chat's TTFT", "longest gap"], rows)])


def draw(title: str, served: Served, span: int) -> str:
    """One SVG; `span` nanoseconds wide, the same for all, so that lengths can be compared."""
    canvas = Canvas(title, caption(served), len(ASKS), span)
    for at, (name, (lane, prompt, answer, _)) in enumerate(ASKS.items()):
        canvas.lane(at, f"{name} {lane} {prompt}+{answer}")
    for bar in bars(served):
        canvas.bar(list(ASKS).index(bar.request), bar.kind, bar.began, bar.ended)
    for at, name in enumerate(ASKS):
        canvas.arrival(at, served.requests[name].arrived)
        canvas.told(at, served.heard[name])
    for step in served.steps:
        canvas.step(step.began, step.began + step.nanoseconds, step.tokens + step.waste_tokens)
    return canvas.text()


def drawings() -> dict[str, str]:
    """By file name."""
    runs = {name: run(policies) for name, (_, policies) in STRATEGIES.items()}
    span = max(served.nanoseconds for served in runs.values())
    return {f"{name}.svg": draw(STRATEGIES[name][0], runs[name], span) for name in STRATEGIES}
