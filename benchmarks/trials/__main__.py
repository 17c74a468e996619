"""Does a trial take back a slower version, and leave an equal one alone?

Half an hour of recorded traffic (azure2023-code and azure2023-conv, in three lanes) is served at 60
% of a data sheet's H100 and an 8B model, in virtual time. Steps take their price times a residual,
drawn as it was measured on a machine (examples/cost.json), slow moments included. The trace begins
anywhere and wraps around. Which lane a chat belongs to, and the order of the versions, are drawn.
The trial is the server's own code: it is handed the clock, the arrivals and the ledger's rows.

A/A: both versions are the same. The order of the versions then does not change the run, so a run is
labelled by several orders. By design, each is an independent draw of what a trial may do wrong.
Planted: in one lane every wait of the new version is a fifth longer, in the rows, and so is its
p95. It is caught if a guardrail of that lane takes the version back within the half hour.

Requests wait for seconds in this traffic's bursts, and 60 % of full batches keeps the device nearly
always at work (`device_busy`), because smaller batches take longer for each token.

Runs that have not ended within --seconds are missing from both counts of trials, which then fall
short. If no trial caught anything, there is no figure of minutes.

A run is made once more with the trial's own Retune commands in the engine's inbox: the rows must be
those of the first run, and each must say its version.

    python -m benchmarks.trials [--runs 20] [--orders 10] [--planted 100] [--seconds 3600] [--check]

Live: `headway serve` as it is, but with a clock for a device, so that several fit on one machine.
The same traffic comes over HTTP from `headway bench`'s open-loop client, four times as fast as it
was recorded; device, slices and limits are as much faster. A token stands for eight, and the device
is half of an H100. Version 2 has the same settings as version 1, and its trial is started, followed
and read over /v1/versions. In `live-planted` the first tokens of one lane really come a fifth later
under version 2. A trial is void, and made again, if a request failed, if the client sent 1 % of the
requests late by a slice or more, or if the machine was too busy for the device's steps.

    python -m benchmarks.trials --part live [--trials 20] [--together 4] [--check]
    python -m benchmarks.trials --part live-planted --trials 5
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Figure, finish, sampled
from benchmarks.trials.chance import ALPHA, at_most, binomial_bound, told
from benchmarks.trials.live import LiveTrial, live_trials
from benchmarks.trials.simulated import Result, measured, switched
from benchmarks.trials.traffic import LOAD, NAMES, SECONDS, SEED, recorded_folder
from headway.rollout.trial import Outcome

PARTS = "simulated", "live", "live-planted"
LIVE_RUNS, PLANTED_RUNS = 1_000, 2_000  # runs of their own: the numbers of the first


def simulated(
    runs: range, orders: int, count: int, seconds: float, folder: Path | None
) -> list[Figure]:
    made = list(measured(runs, orders, count, seconds, folder))
    results = [result for run in made for result in run.results]
    equal = [each for each in results if not each.lane]
    slower = [each for each in results if each.lane]
    false = [each for each in equal if each.outcome == Outcome.TRIPPED]
    caught = [each for each in slower if each.outcome == Outcome.TRIPPED]
    right = [each for each in caught if each.tripped_lane == each.lane and each.seconds <= SECONDS]
    for each in [*false, *[each for each in slower if each not in right]]:
        print(each, file=sys.stderr)
    for by in (lambda each: each.figure, lambda each: each.lane):
        print(dict(Counter(map(by, caught))), "of", dict(Counter(map(by, slower))), file=sys.stderr)
    print(told("false", len(false), len(equal)))
    print(told("caught", len(right), len(slower)))
    loads = sorted([run.load for run in made])
    figures = [
        Figure("trials_of_equals", [len(equal)], least=len(runs) * orders),
        Figure("false_rollbacks", [len(false)], most=binomial_bound(len(equal))),
        Figure("trials_planted", [len(slower)], least=count),
        Figure(
            "caught_in_its_lane_pct", [100 * len(right) / len(slower)] if slower else [], least=95
        ),
        Figure("minutes_until_caught", [each.seconds / 60 for each in right], unit="min"),
        Figure("minutes_of_the_slowest_95", _p95(right), unit="min"),
        Figure("rows_changed_by_switching", [switched(0, folder)], most=0),
        Figure("least_load", loads[:1], least=LOAD - 0.001),
        Figure("largest_load", loads[-1:], most=LOAD + 0.001),
        Figure("device_busy", [run.busy for run in made]),
        Figure("requests", [run.requests for run in made]),
    ]
    return sampled(figures)


def live(trials: range, together: int, is_planted: bool, folder: Path | None) -> list[Figure]:
    begin = PLANTED_RUNS if is_planted else LIVE_RUNS
    wanted = [(begin + n, NAMES[n % len(NAMES)] if is_planted else "") for n in trials]
    made = list[LiveTrial]()
    for trial in live_trials(wanted, together, folder):
        print(trial, flush=True)
        made.append(trial)
    valid = [each for each in made if not each.void]
    tripped = [each for each in valid if each.is_tripped]
    figures = [
        Figure("live_trials", [len(valid)], least=len(trials)),
        Figure("live_void", [len(made) - len(valid)]),
        Figure("live_requests", [each.requests for each in valid]),
        Figure("live_pairs", [each.pairs for each in valid]),
        Figure("live_lag_p99_ms", [1e3 * each.lag for each in valid], unit="ms"),
        Figure("live_device_lost_pct", [100 * each.lost for each in valid]),
    ]
    if is_planted:
        right = [each for each in tripped if f"of lane {each.lane} is" in each.why]
        print(told("live, caught", len(right), len(valid)))
        least = len(trials) - binomial_bound(len(trials))  # one in twenty may be missed
        minutes = [each.minutes for each in right]
        caught = Figure("live_caught", [len(right)], least=least)
        until = Figure("live_minutes_until_caught", minutes, most=30, unit="min")
        return sampled([*figures, caught, until])
    print(told("live, false", len(tripped), len(valid)))
    chance = 1 - at_most(len(tripped) - 1, len(valid), ALPHA)
    print(f"so many or more have a probability of {chance:.3f} if each has {ALPHA:g}")
    false = Figure("live_false_rollbacks", [len(tripped)], most=binomial_bound(len(valid)))
    return sampled([*figures, false])


def _p95(results: Sequence[Result]) -> list[float]:
    """95th percentile of the minutes; empty: there are none."""
    ordered = sorted([each.seconds / 60 for each in results])
    return [ordered[-(-len(ordered) * 95 // 100) - 1]] if ordered else []


def main() -> int:
    parser = ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--traces", type=Path, default=recorded_folder())
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--part", choices=PARTS, default=PARTS[0])
    parser.add_argument("--trials", type=int, default=20, help="live ones")
    parser.add_argument("--first", type=int, default=0, help="of the runs, to take others")
    parser.add_argument("--together", type=int, default=4, help="live ones that run at once")
    given = parser.parse_args()
    if given.part == "simulated":
        runs = range(given.first, given.first + given.runs)
        figures = simulated(runs, given.orders, given.planted, given.seconds, given.traces)
    else:
        is_planted = given.part == "live-planted"
        figures = live(
            range(given.first, given.first + given.trials), given.together, is_planted, given.traces
        )
    return finish("trials", __doc__ or "", SEED, figures)


if __name__ == "__main__":
    sys.exit(main())
