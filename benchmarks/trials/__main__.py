"""Does a trial take back a slower version, and leave an equal one alone?

Half an hour of recorded traffic (azure2023-code and azure2023-conv, in three lanes) is served at
60 % of a data sheet's H100 and an 8B model, in virtual time. Steps take their price times a
residual, drawn as it was measured on a machine (examples/cost.json), slow moments included. The
trace begins anywhere and goes round; which lane a chat belongs to, and the order of the versions,
are drawn. The trial is the server's own code: it is handed the clock, the arrivals and the ledger's
rows.

A/A: both versions are the same. As then no order of the versions changes the run, a run is labelled
by several orders. By design, each is an independent draw of what a trial may do wrong. Planted: in
one lane every wait of the new version is a fifth longer, in the rows; its p95 is then, too.

A run is made once more with the trial's own Retune commands in the engine's inbox: the rows must be
those of the first run, and each must say its version.

    python -m benchmarks.trials [--runs 20] [--orders 10] [--planted 100] [--seconds 3600] [--check]
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Figure, finish
from benchmarks.trials.chance import binomial_bound, told
from benchmarks.trials.simulated import Result, measured, switched
from benchmarks.trials.traffic import LOAD, SEED, recorded_folder
from headway.rollout.trial import Outcome


def simulated(runs: int, orders: int, count: int, seconds: float, folder: Path) -> list[Figure]:
    made = list(measured(runs, orders, count, seconds, folder))
    results = [result for run in made for result in run.results]
    equal = [each for each in results if not each.lane]
    slower = [each for each in results if each.lane]
    false = [each for each in equal if each.outcome == Outcome.TRIPPED]
    caught = [each for each in slower if each.outcome == Outcome.TRIPPED]
    right = [each for each in caught if each.tripped_lane == each.lane]
    for each in [*false, *[each for each in slower if each not in right]]:
        print(each, file=sys.stderr)
    for by in (lambda each: each.figure, lambda each: each.lane):
        print(dict(Counter(map(by, caught))), "of", dict(Counter(map(by, slower))), file=sys.stderr)
    print(told("false", len(false), len(equal)))
    print(told("caught", len(right), len(slower)))
    loads = [run.load for run in made]
    return [
        Figure("trials_of_equals", [len(equal)]),
        Figure("false_rollbacks", [len(false)], most=binomial_bound(len(equal))),
        Figure("trials_planted", [len(slower)]),
        Figure("caught_in_its_lane_pct", [100 * len(right) / max(1, len(slower))], least=95),
        Figure("minutes_until_caught", [each.seconds / 60 for each in right] or [0], unit="min"),
        Figure("minutes_of_the_slowest_95", [_p95(right)], most=30, unit="min"),
        Figure("rows_changed_by_switching", [switched(0, folder)], most=0),
        Figure("least_load", [min(loads)], least=LOAD - 0.001),
        Figure("largest_load", [max(loads)], most=LOAD + 0.001),
        Figure("device_busy", [run.busy for run in made]),
        Figure("requests", [run.requests for run in made]),
    ]


def _p95(results: Sequence[Result]) -> float:
    ordered = sorted([each.seconds / 60 for each in results])
    return ordered[-(-len(ordered) * 95 // 100) - 1] if ordered else 0.0


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--traces", type=Path, default=recorded_folder())
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    figures = simulated(given.runs, given.orders, given.planted, given.seconds, given.traces)
    return finish("trials", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
