"""How far is the simulator from the machine, on the same traffic?

Serves a window of recorded traffic live, calibrates, serves it live again, simulates the same, and
prints signed errors (below 0: simulated too short) of TTFT and TPOT, by endpoint and of all, at
50, 80 and 95 % of the live capacity, and of the capacity itself. Beside each stands the spread of
the two live runs. The calibration lies between them because a machine's speed moves by the minute,
and what it was an hour ago is no fault of a simulator's. Judged: p50 and p90 up to 80 % load, TPOT
within the larger of 5 % and the spread, TTFT of 10 % and the spread; the capacity within 5 %. The
rest is stated.

    python -m benchmarks.fidelity --part tiny       the embedded model, about ten minutes
    python -m benchmarks.fidelity --part half-b     random weights of 0.5B, about twenty minutes
"""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.fidelity.compared import Error, attainments, errors
from benchmarks.fidelity.stage import SCALES, Stage, staged
from benchmarks.report import Figure, finish
from headway.tools.calibration import Calibration, write
from headway.tools.capacity import Capacity, capacity
from headway.tools.run import Outcome
from headway.tools.strategy import SLOTS

SEEDS = range(5)
TOLERANCE = 0.04  # of a capacity: half the requests of a run decide it, not half a million
CONSOLE = Console(width=110)


def found(stage: Stage, serve: Callable[[float], Outcome], low: float) -> Capacity:
    return capacity(lambda rate: _said(stage, rate, serve(rate)), low, 64 * low, TOLERANCE)


def _said(stage: Stage, rate: float, outcome: Outcome) -> dict[str, float]:
    kept = dict(stage.attainment(outcome))
    CONSOLE.print(f"  {rate:8.2f} requests/s: in budget {attainments(kept)}", highlight=False)
    return kept


def capacities(stage: Stage, first: Calibration, is_live: bool) -> tuple[list[float], list[float]]:
    """Requests per second: live, twice; simulated, for each seed, with what was learned between.

    Not live: one simulated, with what was learned first.
    """
    begin = 1e9 * SLOTS / _longest(stage) / 8
    guess = found(stage, partial(stage.simulated, first, seed=0), begin).rate
    if not is_live:
        return [], [guess]
    low = 0.8 * guess
    CONSOLE.print("Live:")
    live = [found(stage, stage.live, low).rate]
    between = stage.calibrated(1)
    CONSOLE.print("Simulated:")
    simulated = [found(stage, partial(stage.simulated, between, seed=s), low).rate for s in SEEDS]
    CONSOLE.print("Live, again:")
    return [*live, found(stage, stage.live, low).rate], simulated


def _longest(stage: Stage) -> float:
    """Nanoseconds for which a request has a slot, at least: its budget of time per token."""
    tokens = mean(request.max_tokens for request in stage.requests)
    return tokens * max(lane.budget.tpot for lane in stage.lanes)


def compared(stage: Stage, rate: float, load: int) -> list[Error]:
    offered = rate * load / 100
    one, between, other = stage.live(offered), stage.calibrated(load), stage.live(offered)
    live = [stage.counted(each) for each in (one, other)]
    simulated = [stage.counted(stage.simulated(between, offered, seed)) for seed in SEEDS]
    return errors([lane.name for lane in stage.lanes], load, live, simulated)


def show(rows: list[Error], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("lane", "metric", "load", "live ms", "simulated ms", "error", "live spread", ""):
        table.add_column(column, justify="left" if column in ("lane", "metric", "") else "right")
    for each in rows:
        verdict = "stated" if not each.is_judged else "within" if each.holds else "falls short"
        table.add_row(
            each.lane or "all",
            f"{each.metric} p{each.percent}",
            f"{each.load} %",
            " / ".join(f"{value / 1e6:.2f}" for value in each.live),
            f"{each.simulated / 1e6:.2f}",
            f"{each.signed:+.1%}",
            f"{each.spread:.1%}",
            verdict,
        )
    CONSOLE.print(table)


def of_capacity(live: list[float], simulated: list[float]) -> list[Figure]:
    error = mean(simulated) / mean(live) - 1
    spread = (max(live) - min(live)) / mean(live)
    CONSOLE.print(
        f"Capacity: live {' / '.join(f'{rate:.2f}' for rate in live)} requests/s, simulated "
        f"{mean(simulated):.2f}: {error:+.1%}, beside a live spread of {spread:.1%}.",
        highlight=False,
    )
    return [
        Figure("err_capacity", [error], least=-0.05, most=0.05),
        Figure("spread_capacity", [spread]),
    ]


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=list(SCALES), default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="write the cost file here")
    parser.add_argument("--loads", default="50,80,95", help="percent of the capacity")
    parser.add_argument("--capacity", choices=("live", "simulated"), default="live")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    CONSOLE.print("Loading, and calibrating ...")
    stage = staged(asked.part, asked.seed)
    first = stage.calibrated(asked.seed)
    if asked.keep:
        write(first, asked.keep)
    scale = stage.scale
    CONSOLE.print(
        f"{scale.model}, {first.dtype}, {stage.threads} threads; "
        f"{scale.requests} requests of azure2023-conv and -code, token counts divided by "
        f"{scale.tokens:g}. Errors per regime: {first.about['errors']}",
        highlight=False,
    )
    live, simulated = capacities(stage, first, is_live=asked.capacity == "live")
    rate = (live or simulated)[0]
    loads = [int(load) for load in asked.loads.split(",")]
    rows = [each for load in loads for each in compared(stage, rate, load)]
    show(rows, "Simulated against live")
    figures = [
        Figure(each.name, [each.signed], least=-each.limit, most=each.limit)
        if each.is_judged
        else Figure(each.name, [each.signed])
        for each in rows
    ]
    if live:
        figures += of_capacity(live, simulated)
    return finish(f"fidelity_{asked.part}", __doc__ or "", asked.seed, figures)


if __name__ == "__main__":
    sys.exit(main())
