"""Does a trial on two engines that share the traffic find a slower version, and blame no machine?

Recorded traffic as in benchmarks.trials, twice as much of it: workflows are assigned at random to
two engines, each at 60 % of a data sheet's H100 with an 8B model, in virtual time. Steps have the
noise of a measured machine. The second machine is a fifth slower: every wait on it is, in the rows.
The trial is the server's own code.

A/A: both versions are the same, and a run is labelled by several orders. Planted: in one lane every
wait of the new version is a fifth longer, on whichever machine it is. Fixed: A/A as well, but the
new version keeps the slower machine, as it would if engines did not exchange their versions.

    python -m benchmarks.trials.split [--runs 25] [--orders 8] [--planted 100] [--seconds 3600]
        [--check]
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from time import monotonic

from benchmarks.report import Figure, finish, sampled
from benchmarks.trials.chance import ALPHA, binomial_bound, exact_interval
from benchmarks.trials.simulated import JOBS, added, planted, serve
from benchmarks.trials.traffic import NAMES, SECONDS, SEED, recorded_folder, window
from headway.core.ledger import RequestRow
from headway.core.request import Request
from headway.rollout.plan import TrialPlan
from headway.rollout.switchback import SECOND, Switchback
from headway.rollout.trial import Outcome, Trial

ENGINES = 0, 1
IN_A_WORKFLOW = 10  # requests, on average
EQUAL, PLANTED, FIXED = "equal", "planted", "fixed"


class Fixed(Switchback):
    """The second engine always has the candidate."""

    def has_candidate(self, place: int, engine: int = 0) -> bool:
        return engine == 1


@dataclass(frozen=True, slots=True)
class Result:
    """One trial: what it was, and what became of it."""

    run: int
    kind: str
    lane: str  # in which something was planted; empty: in none
    outcome: str
    seconds: float  # until then
    tripped_lane: str
    spread: float  # of the pairs' differences of ttft_p95, the mean over lanes


def rows_of(run: int) -> list[tuple[RequestRow, int]]:
    """The rows of both engines, each with its engine, by arrival."""
    listed = window(run, recorded_folder(), slow=1 / len(ENGINES)).specs
    random = Random(f"{SEED} split {run}")
    engines = [random.choice(ENGINES) for _ in range(len(listed) // IN_A_WORKFLOW)]
    tossed: list[list[Request]] = [[], []]
    for n, spec in enumerate(listed):
        prompt = (n + 1,) * spec.prompt
        request = Request(f"{spec.lane}-{n}", prompt, spec.answer, spec.at, spec.lane)
        tossed[random.choice(engines)].append(request)
    first, second = (
        serve(seed, added(each)) for seed, each in ((run, tossed[0]), (run + 1_000, tossed[1]))
    )
    rows = [(row, 0) for row in first.ledger.requests]
    rows += [(planted(row), 1) for row in second.ledger.requests]
    return sorted(rows, key=lambda each: each[0].arrived)


def tried(
    run: int, rows: Sequence[tuple[RequestRow, int]], seed: int, kind: str, lane: str
) -> Result:
    """A trial over a run's rows; the lane is slower under the candidate."""
    trial = Trial(TrialPlan(seed=seed, longest=SECONDS * SECOND, engines=2), NAMES, 0)
    if kind == FIXED:
        trial.times = Fixed(0, trial.plan.slice, trial.plan.wash_out, seed)
    happened = [(row.arrived, 0, n) for n, (row, _) in enumerate(rows)]
    happened += [(row.finished, 1, n) for n, (row, _) in enumerate(rows)]
    last = SECONDS + trial.plan.settle // SECOND
    happened += [(at * SECOND, 2, 0) for at in range(1, last + 1)]
    ended = last * SECOND
    for at, what, n in sorted(happened):
        row, engine = rows[n]
        if what == 0:
            trial.arrived(row.id, row.lane, at, row.prompt, engine)
        elif what == 1:
            place = trial.times.place(row.arrived)
            slow = row.lane == lane and trial.times.has_candidate(place, engine)
            trial.ended(planted(row) if slow else row)
        else:
            trial.tick(at, {}, {})
            if trial.verdict.outcome != Outcome.RUNNING:
                ended = at
                break
    tripped = next((w for w in trial.watches if w.evidence >= trial.needed(w)), None)
    where = tripped.lane if tripped else ""
    return Result(
        run, kind, lane, str(trial.verdict.outcome), ended / SECOND, where, spread_of(trial)
    )


def spread_of(trial: Trial) -> float:
    """The standard deviation of the pairs' differences, in units of the logarithm."""
    found = list[float]()
    for watch in trial.watches:
        seen = watch.differences
        if watch.guardrail.figure == "ttft_p95" and len(seen) > 1:
            mean = sum(seen) / len(seen)
            found.append((sum((each - mean) ** 2 for each in seen) / (len(seen) - 1)) ** 0.5)
    return sum(found) / max(1, len(found))


def run_all(run: int, orders: int, planteds: Sequence[str], total: int) -> list[Result]:
    """One run of the engines, and the trials over its rows."""
    rows = rows_of(run)
    kinds = [*[(EQUAL, "")] * orders, (FIXED, ""), *[(PLANTED, lane) for lane in planteds]]
    return [tried(run, rows, total * number + run, *each) for number, each in enumerate(kinds)]


def measured(runs: int, orders: int, count: int, seconds: float) -> Iterator[Result]:
    """By run, as they come; no run that ends after so many seconds counts."""
    work, end = partial(run_all, orders=orders, total=runs), monotonic() + seconds
    with ProcessPoolExecutor(JOBS) as pool:
        lanes = [NAMES[n % len(NAMES)] for n in range(count)]
        tasks = [pool.submit(work, run, planteds=lanes[run::runs]) for run in range(runs)]
        with suppress(TimeoutError):
            for done, task in enumerate(as_completed(tasks, timeout=end - monotonic()), 1):
                yield from task.result()
                print(f"{done} of {runs} runs", file=sys.stderr)
        pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    parser = ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--orders", type=int, default=8)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    results = list(measured(given.runs, given.orders, given.planted, given.seconds))
    found = figures(results, given.runs * given.orders, given.planted)
    return finish("trials.split", __doc__ or "", SEED, found)


def figures(results: Sequence[Result], equals: int, planteds: int) -> list[Figure]:
    """equals, planteds: trials of each that were to be made."""
    of = {kind: [r for r in results if r.kind == kind] for kind in (EQUAL, FIXED, PLANTED)}
    tripped = {kind: [r for r in some if r.outcome == Outcome.TRIPPED] for kind, some in of.items()}
    right = [each for each in tripped[PLANTED] if each.tripped_lane == each.lane]
    wrong = [each for each in of[PLANTED] if each not in right]
    for each in [*tripped[EQUAL], *wrong]:
        print(each, file=sys.stderr)
    for kind, some in (*tripped.items(), ("planted, in its lane", right)):
        count = len(of[kind.partition(",")[0]])
        low, high = exact_interval(len(some), count)
        print(f"{kind}: {len(some)} of {count} taken back; 95 % (exact): {low:.3f} to {high:.3f}")
    found = [
        Figure("split_trials_of_equals", [len(of[EQUAL])], least=equals),
        Figure(
            "false_rollbacks",
            [len(tripped[EQUAL])],
            most=binomial_bound(len(of[EQUAL]), ALPHA),
        ),
        Figure("machines_blamed_if_fixed", [len(tripped[FIXED])]),
        Figure("of_fixed", [len(of[FIXED])]),
        Figure("split_trials_planted", [len(of[PLANTED])], least=planteds),
        Figure(
            "caught_in_its_lane_pct",
            [100 * len(right) / len(of[PLANTED])] if of[PLANTED] else [],
            least=95,
        ),
        Figure("minutes_until_caught", [each.seconds / 60 for each in right], unit="min"),
        Figure("spread_of_a_pair", [each.spread for each in of[EQUAL]]),
    ]
    return sampled(found)


if __name__ == "__main__":
    sys.exit(main())
