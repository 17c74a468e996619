"""What does the live page cost the server: at each step, and each time that it is viewed?

page, metrics: the page's watcher and the metrics receive the same rows, in turns. copy: a view of
full series (15 minutes, three lanes) and 1,000 open requests, on the event loop. render: its HTML,
in a thread. Both happen once for each fetch, but a view is reused for a second.
`ledger --part overhead` measures the share of tokens per second that page and ledger cost together.

    python -m benchmarks.dashboard [--check]
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from timeit import timeit
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.report import Figure, finish
from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import LaneLoad, Load
from headway.core.request import Finish
from headway.server.answering.call import Call
from headway.server.config.tenant import Tenant
from headway.server.dashboard.looking import model_view
from headway.server.dashboard.page.document import fragment
from headway.server.dashboard.series import KEPT, PART
from headway.server.dashboard.view import View
from headway.server.dashboard.watched import Watched
from headway.server.engine.handle import EngineState
from headway.server.observe.metrics.model import ModelMetrics

SEED = 1
MS = 1_000_000
TURNS, TIMES = 9, 10_000
OPEN = 1_000  # requests
LANES = [Lane(name, Budget(ttft=500 * MS)) for name in ("interactive", "standard", "offline")]
EVERYBODY = Tenant("", "", frozenset([lane.name for lane in LANES]), "standard", "")


def engine_at(now: int) -> Any:
    """An engine that runs a batch of 24."""
    lanes = {lane.name: LaneLoad(lane, 1, 9, running=8, batch=8) for lane in LANES}
    load = Load(now=now, lanes=lanes, running=24, num_blocks=2_048, free_blocks=900)
    return SimpleNamespace(load=load, state=EngineState.READY, journal="", down="")


def step(now: int) -> StepRow:
    return StepRow(1, now, 10 * MS, 0, 24, 24, 24, 0, 0, 24, 3, 900)


def row(now: int, lane: str, ttft: int) -> RequestRow:
    arrived = now - 900 * MS
    times = arrived, arrived + MS, arrived + ttft, now
    return RequestRow("r", lane, Budget(), Finish.STOP, *times, now, 10, 20, 0, 0, 0, MS)


def microseconds(work: Callable[[], object], times: int = TIMES) -> float:
    return timeit(work, number=times) / times * 1e6


def steps() -> list[Figure]:
    now = 10**12
    engine = engine_at(now)
    page = Watched("model", LANES, 32, engine, lambda: now)
    metrics = ModelMetrics("model", LANES, engine, 16, lambda: now)
    none, one = list[RequestRow](), [row(now, "standard", 80 * MS)]
    taken: dict[str, list[float]] = {}
    rows_of_step = [step(now)]
    for _ in range(TURNS):
        for name, told in (("page", page), ("metrics", metrics)):
            for what, rows in (("step", none), ("step_and_request", one)):
                spent = microseconds(lambda told=told, rows=rows: told.rows(rows_of_step, rows))  # type: ignore[misc]
                taken.setdefault(f"{name}_{what}", []).append(spent)
    pairs = zip(taken["page_step"], taken["metrics_step"], strict=True)
    figures = [Figure(name, each, unit="us") for name, each in taken.items()]
    return [*figures, Figure("page_over_metrics_step", [a / b for a, b in pairs], most=1.0)]


def filled() -> tuple[Watched, int]:
    """A model whose series are full, and when that is."""
    end = 10**12 // PART * PART
    page = Watched("model", LANES, 32, engine_at(end), lambda: end)
    for part in range(KEPT):
        now = end - (KEPT - part) * PART
        page.rows([step(now)] * 20, [])
        for lane in LANES:
            page.rows([], [row(now, lane.name, (k % 97 + 1) * 7 * MS) for k in range(50)])
    return page, end


def looks() -> list[Figure]:
    """Milliseconds for one page."""
    page, end = filled()
    page.calls |= {str(k): opened(k) for k in range(OPEN)}
    view = seen(page, end)  # and half minutes that are over are known from now on
    return [
        Figure("copy", _milliseconds(lambda: seen(page, end)), unit="ms"),
        Figure("render", _milliseconds(lambda: fragment(view)), unit="ms"),
        Figure("bytes", [len(fragment(view))]),
    ]


def _milliseconds(work: Callable[[], object]) -> list[float]:
    return [microseconds(work, 5) / 1e3 for _ in range(TURNS)]


def opened(number: int) -> Call:
    """As much of a call as the page reads."""
    request = SimpleNamespace(prompt=(1,) * 9, max_tokens=99, lane="standard")
    answer = SimpleNamespace(request=request, tokens=[1] * (number % 5), finish=Finish.NOT_YET)
    routed = SimpleNamespace(tenant=EVERYBODY, lane="standard")
    choices = {f"cmpl-{number}-0": SimpleNamespace(answer=answer)}
    return cast(Call, SimpleNamespace(routed=routed, choices=choices, arrived=number))


def seen(page: Watched, now: int) -> View:
    return View(now, now, (model_view(page, EVERYBODY, now),), (), False, 0, "", False)


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--check", action="store_true")
    parser.parse_args()
    return finish("dashboard", __doc__ or "", SEED, [*steps(), *looks()])


if __name__ == "__main__":
    sys.exit(main())
