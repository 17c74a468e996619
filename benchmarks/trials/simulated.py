"""Trials over runs in virtual time: equal versions, and one that is slower in a lane."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.budgets.mixes import SECOND
from benchmarks.trials.traffic import LANES, NAMES, SECONDS, STRATEGY, device, window
from headway.core.commands import Add, Command, Retune
from headway.core.ledger import RequestRow
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.rollout.plan import TrialPlan
from headway.rollout.trial import Outcome, Trial
from headway.sim.simulate import simulate

JOBS = 2
PLANTED = 1.2  # times as long as the other version's wait
SHORT = 6  # a run that is made twice has one of so many parts


@dataclass(frozen=True, slots=True)
class Result:
    """One trial: what was planted, and what became of it."""

    run: int
    lane: str  # empty: A/A
    outcome: str
    seconds: float  # until then
    figure: str  # that tripped
    tripped_lane: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the engine, and the trials over its rows."""

    load: float
    busy: float  # share of the time in which the device computed
    requests: int
    results: tuple[Result, ...]


def requests_of(run: int, folder: Path | None) -> list[Request]:
    return [
        Request(f"{spec.lane}-{n}", (n + 1,) * spec.prompt, spec.answer, spec.at, spec.lane)
        for n, spec in enumerate(window(run, folder).specs)
    ]


def serve(run: int, timed: Sequence[tuple[int, Command]]) -> Scheduler:
    """After the run. The noise of its steps' times is drawn by their numbers."""
    priced = device()
    memory = priced.num_blocks, priced.block_size
    scheduler = Scheduler(Settings(*memory, LANES, STRATEGY, priced.context, priced.cost))
    simulate(scheduler, timed, priced.cost, seed=run)
    scheduler.check()
    return scheduler


def added(requests: Sequence[Request]) -> list[tuple[int, Command]]:
    return [(each.arrived, Add(each)) for each in requests]


def tried(rows: Sequence[RequestRow], seed: int, lane: str) -> tuple[Trial, float]:
    """A trial over a run's rows, in order of time; the lane is slower under the candidate."""
    trial = Trial(TrialPlan(seed=seed, longest=SECONDS * SECOND), NAMES, 0)
    happened = [(row.arrived, 0, n) for n, row in enumerate(rows)]
    happened += [(row.finished, 1, n) for n, row in enumerate(rows)]
    last = SECONDS + trial.plan.settle // SECOND
    happened += [(at * SECOND, 2, 0) for at in range(1, last + 1)]
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
    raise AssertionError("a trial ends when its time is over")


def planted(row: RequestRow) -> RequestRow:
    """As if it had waited PLANTED times as long, for its start and for its first token."""
    start, first = (round(PLANTED * each) for each in (row.queue, row.ttft))
    return replace(row, first_scheduled=row.arrived + start, first_token=row.arrived + first)


def run_all(run: int, orders: int, planteds: Sequence[str], folder: Path | None) -> Run:
    """One run of the engine, and the trials over its rows."""
    served = serve(run, added(requests_of(run, folder)))
    rows = served.ledger.requests
    results = list[Result]()
    for number, lane in enumerate([*[""] * orders, *planteds]):
        trial, seconds = tried(rows, 1_000 * number + run, lane)
        is_tripped = trial.verdict.outcome == Outcome.TRIPPED
        tripped = [w for w in trial.watches if w.evidence >= trial.needed(w)] if is_tripped else []
        what = (tripped[0].guardrail.figure, tripped[0].lane) if tripped else ("", "")
        results.append(Result(run, lane, str(trial.verdict.outcome), seconds, *what))
    computed = sum(step.nanoseconds for step in served.ledger.steps)
    load = window(run, folder).load
    return Run(load, computed / (SECONDS * SECOND), len(rows), tuple(results))


def switched(run: int, folder: Path | None) -> int:
    """A shorter run with the trial's Retunes in the inbox. Returns rows that differ."""
    end = SECONDS * SECOND // SHORT
    requests = [each for each in requests_of(run, folder) if each.arrived < end]
    times = Trial(TrialPlan(seed=run), NAMES, 0).times
    retunes = [
        (times.end(place - 1), Retune(1 + times.has_candidate(place), STRATEGY, LANES))
        for place in range(end // times.slice)
    ]
    timed = sorted([*retunes, *added(requests)], key=lambda each: each[0])
    plain, rows = (serve(run, each).ledger.requests for each in (added(requests), timed))
    wrong = sum(replace(row, version=0) != other for row, other in zip(rows, plain, strict=True))
    wrong += sum(
        row.version != 1 + times.has_candidate(times.place(row.arrived))
        for row in rows
        if times.is_judged(row.arrived)
    )
    return wrong


def measured(
    runs: range, orders: int, count: int, seconds: float, folder: Path | None
) -> Iterator[Run]:
    """Results as they come; no run that ends after so many seconds counts. count: trials with
    something planted; their lanes are dealt out to the runs."""
    lanes = [NAMES[n % len(NAMES)] for n in range(count)]
    with ProcessPoolExecutor(JOBS) as pool:
        tasks = [
            pool.submit(run_all, run, orders, lanes[n :: len(runs)], folder)
            for n, run in enumerate(runs)
        ]
        done = 0
        with suppress(TimeoutError):
            for task in as_completed(tasks, timeout=seconds):
                yield task.result()
                done += 1
                print(f"{done} of {len(runs)} runs", file=sys.stderr, flush=True)
        for process in pool._processes.values() if done < len(runs) else ():
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
