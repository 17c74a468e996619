"""Does a deadline that is split by learned cost keep as many workflows as the best fixed split?

Three equal stages in a row, and one whose calls are planted to take four times as long: in the
middle, or with --places at the beginning or the end. 4 ms + 0.5 ms an item, at most 32 items a
call, a deadline of 200 ms for the whole; all simulated in virtual time, so it needs no quiet
machine. At each load (of what the slow stage can do with full calls) every fixed split of a grid is
tried, and the best is chosen by the seeds that it is judged by: nobody could choose better. The
learned split knows neither the load nor the slow stage. Both meet the same arrivals and the same
residuals of calls (common random numbers). A figure is the difference of the shares of good
workflows, seed by seed, with the lower end of its 95 % interval (t).

Share: what the slow stage gets of the deadline, before and after its calls take four times as long.

    python -m benchmarks.pipeline [--places middle] [--seeds 6] [--workflows 600] [--check]
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from math import sqrt
from random import Random
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.report import Figure, finish
from headway.core.request import NEVER
from headway.pipelines.graph import stage
from headway.pipelines.simulated.simulate import simulate_pipeline
from headway.pipelines.simulated.stage import SimulatedStage
from headway.pipelines.split import Fixed, Learned, Splitting, Undivided

SEED = 1
NAMES = "abc"
STAGE = SimulatedStage("", 0.004, 0.0005, size=32, cv=0.1)
SLOWER, DEADLINE = 4.0, 200_000_000
LOADS = 0.7, 0.9, 1.0, 1.15
WINDOWS = 0.0, 0.05  # seconds that an item may wait for others
PLACES = {"first": 0, "middle": 1, "last": 2}
WARM = 0.1  # of the workflows, which are not counted: nothing is learned yet
NO_WORSE = -0.01  # of the workflows
T = {2: 6.31, 3: 2.92, 4: 2.35, 5: 2.13, 6: 2.02, 8: 1.89, 10: 1.83}  # 95 %, one-sided, by n
LEARNED, UNDIVIDED = "learned", "undivided"


@dataclass(frozen=True)
class Run:
    """One simulation."""

    place: str  # of the slow stage
    window: float
    load: float
    seed: int
    name: str
    split: Splitting
    workflows: int


def arrivals(rate: float, count: int, seed: int) -> list[int]:
    draw, at, times = Random(seed), 0.0, list[int]()
    for _ in range(count):
        at += draw.expovariate(rate)
        times.append(int(at * 1e9))
    return times


def graph(stages: Iterable[SimulatedStage]) -> Any:
    first, second, third = [stage(each) for each in stages]
    return first >> second >> third


def good_share(run: Run) -> float:
    """The share of the workflows that were good, after the warm-up."""
    stages = [replace(STAGE, name=name, window=run.window) for name in NAMES]
    slow = PLACES[run.place]
    base, per_item = SLOWER * STAGE.base, SLOWER * STAGE.per_item
    stages[slow] = replace(stages[slow], base=base, per_item=per_item)
    rate = run.load * STAGE.size / (base + per_item * STAGE.size)
    times = arrivals(rate, run.workflows, run.seed)
    found = simulate_pipeline(
        graph(stages), times, deadline=DEADLINE, split=run.split, seed=run.seed
    )
    first = times[int(WARM * run.workflows)]
    good = sum([row.good for row in found.rows if row.arrived >= first])
    return good / (run.workflows - int(WARM * run.workflows))


def fixed_splits(parts: int) -> dict[str, Splitting]:
    """All divisions of the deadline into so many parts, each stage with one at least; and finer
    ones that leave two stages almost nothing."""
    found = dict[str, Splitting]()
    for first, second in product(range(1, parts), repeat=2):
        if (third := parts - first - second) >= 1:
            shares = first / parts, second / parts, third / parts
            found[" ".join(f"{share:.3f}" for share in shares)] = Fixed(shares)
    for slow in range(3):
        for little in (0.03, 0.06, 0.09):
            shares_of = [little] * 3
            shares_of[slow] = 1 - 2 * little
            found[" ".join(f"{share:.3f}" for share in shares_of)] = Fixed(tuple(shares_of))
    return found


def shares(seed: int, workflows: int) -> tuple[float, float]:
    """The slow stage's share of the deadline before and after it grows slow."""
    turn = 5.0
    stages = [replace(STAGE, name=name) for name in NAMES]
    stages[1] = replace(stages[1], slowed=((turn, SLOWER),))
    rate = 0.8 * STAGE.size / (SLOWER * (STAGE.base + STAGE.per_item * STAGE.size))
    times = arrivals(rate, max(workflows, int(2.5 * turn * rate)), seed)
    found = simulate_pipeline(graph(stages), times, deadline=DEADLINE, seed=seed)
    before, after = list[float](), list[float]()
    for row in found.rows:
        if len(row.visits) > 1 and row.visits[1].given != NEVER:
            share = row.visits[1].given / DEADLINE
            if 1.0 < row.arrived / 1e9 < turn - 0.5:
                before.append(share)
            elif row.arrived / 1e9 > turn + 1.0:
                after.append(share)
    return mean(before), mean(after)


Kept = Mapping[tuple[str, float, float], Mapping[str, list[float]]]


def measured(runs: list[Run]) -> Kept:
    kept: dict[tuple[str, float, float], dict[str, list[float]]] = defaultdict(dict)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for run, share in zip(runs, pool.map(good_share, runs, chunksize=8), strict=True):
            of = kept[run.place, run.window, run.load]
            of.setdefault(run.name, []).append(share)
    return kept


def lower(differences: list[float]) -> float:
    """The lower end of the mean's 95 % interval."""
    n = len(differences)
    return mean(differences) - T.get(n, 1.66) * stdev(differences) / sqrt(n)


def told(kept: Kept) -> tuple[Table, list[Figure]]:
    table = Table(title="share of workflows inside 200 ms", title_justify="left")
    columns = ("slow stage", "window", "load", "learned", "best fixed", "its shares")
    for column in (*columns, "difference", "at least", "equal thirds", "undivided"):
        table.add_column(column, justify="left" if column in columns[:1] else "right")
    figures, least = list[Figure](), list[float]()
    for (place, window, load), of in kept.items():
        fixed = {name: each for name, each in of.items() if name not in (LEARNED, UNDIVIDED)}
        best = max(fixed, key=lambda name: mean(fixed[name]))
        differences = [a - b for a, b in zip(of[LEARNED], of[best], strict=True)]
        least.append(lower(differences))
        thirds = mean(of["equal"])
        numbers = mean(of[LEARNED]), mean(of[best])
        table.add_row(
            place,
            f"{1e3 * window:.0f} ms",
            f"{load:g}",
            *[f"{100 * each:.1f} %" for each in numbers],
            best,
            f"{100 * mean(differences):+.1f}",
            f"{100 * least[-1]:+.1f}",
            f"{100 * thirds:.1f} %",
            f"{100 * mean(of[UNDIVIDED]):.1f} %",
        )
        name = f"{place}_{1e3 * window:.0f}ms_{load:g}"
        figures.append(Figure(f"learned_less_best_fixed_{name}", differences, least=NO_WORSE))
    return table, [*figures, Figure("lowest_lower_bound", [min(least)])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--places", nargs="+", choices=PLACES, default=["middle"])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--workflows", type=int, default=600, help="of each run")
    parser.add_argument("--parts", type=int, default=6, help="of the grid of fixed splits")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure falls short")
    given = parser.parse_args()
    splits: dict[str, Splitting] = {LEARNED: Learned(), UNDIVIDED: Undivided()}
    splits |= {"equal": Fixed((1 / 3, 1 / 3, 1 / 3)), **fixed_splits(given.parts)}
    seeds = [SEED + turn for turn in range(given.seeds)]
    runs = [
        Run(place, window, load, seed, name, split, given.workflows)
        for place, window, load in product(given.places, WINDOWS, LOADS)
        for name, split in splits.items()
        for seed in seeds
    ]
    table, figures = told(measured(runs))
    Console(width=110).print(table)
    pairs = [shares(seed, given.workflows) for seed in seeds]
    figures.append(Figure("slow_stage_share_before", [before for before, _ in pairs]))
    figures.append(Figure("slow_stage_share_after", [after for _, after in pairs]))
    grown = [after / before for before, after in pairs]
    figures.append(Figure("slow_stage_share_grows", grown, least=1.2, unit="times"))
    return finish("pipeline", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    raise SystemExit(main())
