"""Does a trial take back a slower version, and leave an equal one alone?

Half an hour of recorded traffic (azure2023-code and azure2023-conv, in three lanes) is served at
60 % of a data sheet's H100 and an 8B model, in virtual time. The trace begins anywhere and goes
round; which lane a chat belongs to, and the order of the versions, are drawn. The trial is the
server's own code: it is handed the clock, the arrivals and the ledger's rows.

A/A: both versions are the same. As then no order of the versions changes the run, a run is labelled
by several orders. By design, each is an independent draw of what a trial may do wrong. Planted: in
one lane every wait of the new version is a fifth longer, in the rows; its p95 is then, too.

Some runs are made once more with the trial's own Retune commands in the engine's inbox: the rows
must be those of the first run, and each must say its version.

    python -m benchmarks.trials [--runs 25] [--orders 8] [--planted 100] [--seconds 3600] [--check]
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import comb
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic

from benchmarks.budgets.mixes import CODE, CONV, MS, SECOND, SHARED, _calibration, arrivals
from benchmarks.report import Figure, finish
from headway.core.commands import Add, Command, Retune
from headway.core.cost.features import row_features
from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow
from headway.core.policies.policies import usual
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.rollout.plan import TrialPlan
from headway.rollout.trial import Outcome, Trial
from headway.sim.simulate import simulate
from headway.traffic.recorded_trace import RecordedTrace

SEED, SECONDS, LOAD, ALPHA = 0, 1_800, 0.6, 0.05
SLOTS, CONTEXT, TURNS = 256, 8_192, 8
JOBS = 2
PLANTED = 1.2  # times the wait of the other version
LANES = (
    Lane("completion", Budget(ttft=SECOND, tpot=50 * MS), 0),
    Lane("chat", Budget(ttft=2 * SECOND, tpot=80 * MS), 1),
    Lane("batch", Budget(e2e=120 * SECOND), 2),
)
NAMES = tuple(lane.name for lane in LANES)


@dataclass(frozen=True, slots=True)
class Result:
    """One trial: what was planted, and what became of it."""

    run: int
    lane: str  # empty: A/A
    outcome: str
    seconds: float  # until then
    figure: str  # that tripped
    tripped_lane: str


def folder() -> Path | None:
    """Where the traces are recorded in full; None: the windows that ship."""
    return SHARED if (SHARED / f"{CONV}.csv.gz").is_file() else None


def specs(run: int, pace: float = 1.0) -> list[RequestSpec]:
    """The requests of a run, by arrival. pace: times are multiplied by."""
    random, found = Random(f"{SEED} run {run}"), list[RequestSpec]()
    for trace, lanes in ((CODE, NAMES[:1]), (CONV, ("chat", "chat", "batch"))):
        recorded = RecordedTrace(arrivals(folder(), trace), trace, scale=1)
        listed = list(recorded.specs(lanes[0], SEED, CONTEXT))
        whole = listed[-1].at + SECOND
        begin = random.randrange(whole)
        for turn in range(TURNS):
            for spec in listed:
                at = int((spec.at + turn * whole - begin) * pace)
                if 0 <= at < SECONDS * SECOND:
                    found.append(replace(spec, at=at, lane=random.choice(lanes)))
    return sorted(found, key=lambda spec: spec.at)


def load_of(listed: Sequence[RequestSpec]) -> float:
    """Device-seconds a second at full batches."""
    cost = _calibration(SLOTS, CONTEXT).cost
    full = sum((row_features(1_000, 1, 1) for _ in range(SLOTS - 1)), row_features(1_000, 1, 1))
    price = TokenCost(cost.predict(row_features(0, 512, 1)) / 512, cost.predict(full) / SLOTS)
    return price.of(listed) / (SECONDS * SECOND)


def requests_of(run: int) -> list[Request]:
    """At LOAD: times are stretched, once, by the load at their own pace."""
    listed = specs(run, load_of(specs(run)) / LOAD)
    return [
        Request(f"{spec.lane}-{n}", (n + 1,) * spec.prompt, spec.answer, spec.at, spec.lane)
        for n, spec in enumerate(listed)
    ]


def serve(run: int, timed: Sequence[tuple[int, Command]]) -> list[RequestRow]:
    priced = _calibration(SLOTS, CONTEXT)
    memory = priced.num_blocks, priced.block_size
    scheduler = Scheduler(Settings(*memory, LANES, usual(SLOTS), priced.context, priced.cost))
    simulate(scheduler, timed, priced.cost, seed=run)
    scheduler.check()
    return scheduler.ledger.requests


def added(requests: Sequence[Request]) -> list[tuple[int, Command]]:
    return [(each.arrived, Add(each)) for each in requests]


def tried(rows: Sequence[RequestRow], seed: int, lane: str) -> tuple[Trial, float]:
    """A trial over a run's rows, in order of time; the lane is slower under the candidate."""
    trial = Trial(TrialPlan(seed=seed, longest=SECONDS * SECOND), NAMES, 0)
    happened = [(row.arrived, 0, n) for n, row in enumerate(rows)]
    happened += [(row.finished, 1, n) for n, row in enumerate(rows)]
    happened += [(at * SECOND, 2, 0) for at in range(1, SECONDS + 1)]
    for at, kind, n in sorted(happened):
        if kind == 0:
            trial.arrived(rows[n].id, rows[n].lane, at, rows[n].prompt)
        elif kind == 1:
            row, times = rows[n], trial.times
            slow = row.lane == lane and times.has_candidate(times.place(row.arrived))
            trial.ended(planted(row) if slow else row)
        else:
            trial.tick(at, {})
            if trial.verdict.outcome != Outcome.RUNNING:
                return trial, at / SECOND
    return trial, SECONDS


def planted(row: RequestRow) -> RequestRow:
    """As if it had waited PLANTED times as long, for its start and for its first token."""
    start, first = (round(PLANTED * each) for each in (row.queue, row.ttft))
    return replace(row, first_scheduled=row.arrived + start, first_token=row.arrived + first)


def run_all(run: int, orders: int, planteds: Sequence[str], total: int) -> list[Result]:
    """One run of the engine, and the trials over its rows."""
    rows = serve(run, added(requests_of(run)))
    lanes = [*[""] * orders, *planteds]
    found = list[Result]()
    for number, lane in enumerate(lanes):
        trial, seconds = tried(rows, total * number + run, lane)
        tripped = next((w for w in trial.watches if w.evidence >= trial.needed(w)), None)
        what = (tripped.guardrail.figure, tripped.lane) if tripped else ("", "")
        found.append(Result(run, lane, str(trial.verdict.outcome), seconds, *what))
    return found


def switched(run: int) -> int:
    """A shorter run with the trial's Retunes in the inbox. Returns rows that differ."""
    requests = [each for each in requests_of(run) if each.arrived < SECONDS * SECOND // 6]
    times = Trial(TrialPlan(seed=run), NAMES, 0).times
    retunes = [
        (times.end(place - 1), Retune(1 + times.has_candidate(place), usual(SLOTS), LANES))
        for place in range(SECONDS * SECOND // 6 // times.slice)
    ]
    timed = sorted([*retunes, *added(requests)], key=lambda each: each[0])
    plain, rows = serve(run, added(requests)), serve(run, timed)
    wrong = sum(replace(row, version=0) != other for row, other in zip(rows, plain, strict=True))
    wrong += sum(
        row.version != 1 + times.has_candidate(times.place(row.arrived))
        for row in rows
        if times.is_judged(row.arrived)
    )
    return wrong


def binomial_bound(count: int, share: float) -> int:
    """The most false alarms of so many trials that have a probability above 0.05, if each has
    this one."""
    beyond, most = 1.0, -1
    while beyond > ALPHA:
        most += 1
        beyond -= comb(count, most) * share**most * (1 - share) ** (count - most)
    return most


def exact_interval(found: int, count: int) -> tuple[float, float]:
    """Of a share, 95 %, for independent trials (Clopper and Pearson, Biometrika, 1934)."""

    def at_most(most: int, share: float) -> float:
        terms = (comb(count, n) * share**n * (1 - share) ** (count - n) for n in range(most + 1))
        return sum(terms)

    def edge(is_beyond: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if is_beyond(middle) else (middle, high)
        return low

    low = edge(lambda share: 1 - at_most(found - 1, share) > 0.025) if found else 0.0
    high = edge(lambda share: at_most(found, share) < 0.025) if found < count else 1.0
    return low, high


def dealt(count: int, runs: int) -> list[list[str]]:
    """The lanes in which something is planted, by run."""
    lanes = [NAMES[n % len(NAMES)] for n in range(count)]
    return [lanes[run::runs] for run in range(runs)]


def measured(runs: int, orders: int, count: int, seconds: float) -> Iterator[Result]:
    """By run, as they come; no run that ends after so many seconds counts."""
    work, end = partial(run_all, orders=orders, total=runs), monotonic() + seconds
    with ProcessPoolExecutor(JOBS) as pool:
        tasks = [
            pool.submit(work, run, planteds=each) for run, each in enumerate(dealt(count, runs))
        ]
        done = 0
        with suppress(TimeoutError):
            for task in as_completed(tasks, timeout=end - monotonic()):
                yield from task.result()
                done += 1
                print(f"{done} of {runs} runs", file=sys.stderr)
        pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--orders", type=int, default=8)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    results = list(measured(given.runs, given.orders, given.planted, given.seconds))
    equal = [each for each in results if not each.lane]
    slower = [each for each in results if each.lane]
    false = [each for each in equal if each.outcome == Outcome.TRIPPED]
    caught = [each for each in slower if each.outcome == Outcome.TRIPPED]
    right = [each for each in caught if each.tripped_lane == each.lane]
    missed = [each for each in slower if each not in right]
    for each in [*false, *missed]:
        print(each, file=sys.stderr)
    print(Counter(each.figure for each in caught), file=sys.stderr)
    for name, some, of in (("false", false, equal), ("caught", right, slower)):
        low, high = exact_interval(len(some), len(of))
        print(f"{name}: {len(some)} of {len(of)}, 95 % (exact): {low:.3f} to {high:.3f}")
    figures = [
        Figure("trials_of_equals", [len(equal)]),
        Figure("false_rollbacks", [len(false)], most=binomial_bound(len(equal), ALPHA)),
        Figure("trials_planted", [len(slower)]),
        Figure("caught_in_its_lane_pct", [100 * len(right) / max(1, len(slower))], least=95),
        Figure("minutes_until_caught", [each.seconds / 60 for each in right] or [0], unit="min"),
        Figure("minutes_of_the_slowest_95", [_p95(right)], most=30, unit="min"),
        Figure("rows_changed_by_switching", [switched(0)], most=0),
        Figure("load", [median([load_of(specs(0, load_of(specs(0)) / LOAD))])]),
    ]
    return finish("trials", __doc__ or "", SEED, figures)


def _p95(results: Sequence[Result]) -> float:
    ordered = sorted([each.seconds / 60 for each in results])
    return ordered[-(-len(ordered) * 95 // 100) - 1] if ordered else 0.0


if __name__ == "__main__":
    sys.exit(main())
