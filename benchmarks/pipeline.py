"""Does a deadline that is split by learned cost keep as many workflows as the best fixed split?

Three equal stages in a row, one of them with calls that are planted to take four times as long: in
the middle, or with --places at the beginning or the end. 4 ms + 0.5 ms an item, at most 32 items a
call, a deadline of 200 ms for the whole; all simulated in virtual time, so it needs no quiet
machine. At each load (of what the slow stage can do with full calls) every fixed split of a grid is
tried on the first three seeds, and the best four of them on all seeds. The best of those is
compared: it is chosen by the seeds that it is judged by. The learned split knows neither the load
nor the slow stage; what is fixed in it was chosen on seeds from 100 on. Both meet the same arrivals
and the same residuals of calls (common random numbers). A figure is the difference of the shares of
good workflows, seed by seed, with its 95 % interval (t). It is worse beyond noise where the whole
interval is below 0.

Share: what the slow stage gets of the deadline, before and after its calls take four times as long.

    python -m benchmarks.pipeline [--places middle] [--seeds 10] [--workflows 1000] [--check]
"""

import argparse
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
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

SEED = 2
TRIED, KEPT = 3, 4  # seeds that all fixed splits are tried on; splits that are tried on all
NAMES = "abc"
STAGE = SimulatedStage("", 0.004, 0.0005, size=32, cv=0.1)
SLOWER, DEADLINE = 4.0, 200_000_000
LOADS = 0.7, 0.9, 1.0, 1.15
WINDOWS = 0.0, 0.05  # seconds that an item may wait for others
PLACES = {"first": 0, "middle": 1, "last": 2}
WARM = 0.1  # of the workflows, which are not counted: nothing is learned yet
# Student's t, 97.5 %, by the number of seeds
T = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26, 20: 2.09}
LEARNED, UNDIVIDED = "learned", "undivided"
OURS = LEARNED, UNDIVIDED
Splits = dict[str, Splitting]


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


def named(shares: Sequence[float]) -> str:
    return "/".join(f"{100 * share:.0f}" for share in shares)


def fixed_splits(parts: int) -> dict[str, Splitting]:
    """All divisions of the deadline into so many parts, each stage with one at least; and finer
    ones that leave two stages almost nothing."""
    found = dict[str, Splitting]()
    for first, second in product(range(1, parts), repeat=2):
        if (third := parts - first - second) >= 1:
            shares = first / parts, second / parts, third / parts
            found[named(shares)] = Fixed(shares)
    for slow in range(3):
        for little in (0.03, 0.06, 0.09):
            shares_of = [little] * 3
            shares_of[slow] = 1 - 2 * little
            found[named(shares_of)] = Fixed(tuple(shares_of))
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


Cell = tuple[str, float, float]  # place of the slow stage, window, load
Kept = dict[Cell, dict[str, list[float]]]  # by split, its shares of good workflows, seed by seed


def measure(pool: Executor, runs: list[Run], kept: Kept) -> None:
    for run, share in zip(runs, pool.map(good_share, runs, chunksize=4), strict=True):
        kept[run.place, run.window, run.load].setdefault(run.name, []).append(share)


def measured(cells: list[Cell], splits: Splits, seeds: range, workflows: int) -> Kept:
    """All splits on the first seeds, then the learned one and the best fixed ones on all."""
    kept: Kept = {cell: {} for cell in cells}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        first = [
            Run(*cell, seed, name, split, workflows)
            for cell in cells
            for name, split in splits.items()
            for seed in seeds[:TRIED]
        ]
        measure(pool, first, kept)
        then = list[Run]()
        for cell, of in kept.items():
            fixed = [name for name in of if name not in OURS]
            fixed.sort(key=lambda name: -mean(of[name]))
            for name in (LEARNED, *fixed[:KEPT]):
                for seed in seeds[TRIED:]:
                    then.append(Run(*cell, seed, name, splits[name], workflows))
        measure(pool, then, kept)
    return kept


def interval(differences: list[float]) -> tuple[float, float]:
    """Of their mean, 95 %."""
    n = len(differences)
    half = T.get(n, 1.96) * stdev(differences) / sqrt(n)
    return mean(differences) - half, mean(differences) + half


def told(kept: Kept) -> tuple[Table, list[Figure]]:
    table = Table(title="% of workflows inside 200 ms", title_justify="left")
    columns = "slow", "window", "load", "learned", "best fixed", "shares", "difference", "95 %"
    for column in (*columns, "thirds*", "undivided*"):
        table.add_column(column, justify="left" if column == "slow" else "right")
    figures, means, worse = list[Figure](), list[float](), 0
    for (place, window, load), of in kept.items():
        whole = {name: each for name, each in of.items() if len(each) == len(of[LEARNED])}
        fixed = {name: each for name, each in whole.items() if name not in OURS}
        best = max(fixed, key=lambda name: mean(fixed[name]))
        differences = [a - b for a, b in zip(of[LEARNED], of[best], strict=True)]
        low, high = interval(differences)
        means.append(mean(differences))
        worse += high < 0
        numbers = of[LEARNED], of[best], of["equal"], of[UNDIVIDED]
        shown = [f"{100 * mean(each):.1f}" for each in numbers]
        around = f"{100 * low:+.1f} {100 * high:+.1f}"
        about = place, f"{1e3 * window:.0f} ms", f"{load:g}", *shown[:2], best
        table.add_row(*about, f"{100 * means[-1]:+.2f}", around, *shown[2:])
        name = f"{place}_{1e3 * window:.0f}ms_{load:g}"
        figures.append(Figure(f"learned_less_best_fixed_{name}", differences))
    figures.append(Figure("mean_difference", [mean(means)], least=0.0))
    figures.append(Figure("least_difference", [min(means)]))
    return table, [*figures, Figure("worse_beyond_noise", [worse], most=0, unit="cells")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--places", nargs="+", choices=PLACES, default=["middle"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workflows", type=int, default=1000, help="of each run")
    parser.add_argument("--parts", type=int, default=4, help="of the grid of fixed splits")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure falls short")
    given = parser.parse_args()
    splits: Splits = {LEARNED: Learned(), UNDIVIDED: Undivided()}
    splits |= {"equal": Fixed((1 / 3, 1 / 3, 1 / 3)), **fixed_splits(given.parts)}
    seeds = range(SEED, SEED + given.seeds)
    cells = list(product(given.places, WINDOWS, LOADS))
    table, figures = told(measured(cells, splits, seeds, given.workflows))
    console = Console(width=110)
    console.print(table)
    console.print(f"n {given.seeds} seeds; * {TRIED} seeds")
    pairs = [shares(seed, given.workflows) for seed in seeds]
    figures.append(Figure("slow_stage_share_before", [before for before, _ in pairs]))
    figures.append(Figure("slow_stage_share_after", [after for _, after in pairs]))
    grown = [after / before for before, after in pairs]
    figures.append(Figure("slow_stage_share_grows", grown, least=1.2, unit="times"))
    return finish("pipeline", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    raise SystemExit(main())
