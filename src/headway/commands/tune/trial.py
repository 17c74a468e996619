"""Trials: a candidate's engine on windows of the traffic, at one rate or at its capacity.

A trial runs in a worker process, so its input and its result can be pickled. All candidates are
offered the same requests, and their nth steps draw the same residuals (common random numbers).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Self

from headway.commands.simulate.capacity_text import Found
from headway.commands.simulate.simulated_experiment import REPEATS, noisy_testbed
from headway.commands.simulate.sweep_point import Figures, figures_of
from headway.commands.simulate.sweep_setting import calibration_at
from headway.commands.tune.site import Setup
from headway.core.ledger import StepRow
from headway.core.policies.join import Continuous
from headway.costing.calibration import Calibration
from headway.costing.token_cost import TokenCost
from headway.figures.capacity import TOLERANCE, Capacity, TriedRate, search_capacity
from headway.figures.capacity_interval import Tallies, capacity_interval, sum_repeats
from headway.report.reporter import DRAIN
from headway.runs.experiment import custom_workload
from headway.runs.run import Run
from headway.runs.testbed import Testbed
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.selection import Demand, select_requests
from headway.traffic.workload import Workload

TAIL = 0.95  # the percentile of step or group times that counts as the longest


@dataclass(frozen=True, slots=True)
class Course:
    """What every trial shares: the machine and the windows of the traffic."""

    calibration: Calibration
    windows: tuple[tuple[EndpointTraffic, ...], ...]
    token_cost: TokenCost
    requests: int  # per window, if its endpoints are drawn
    seed: int
    enforce: bool  # some lane has a limit after which the server drops a request

    def work(self, window: int, rate: float, testbed: Testbed) -> Workload:
        """The requests of one window, sped up or slowed down to the rate."""
        services = list(self.windows[window])
        seed, context = REPEATS * self.seed + window, testbed.context
        times = [
            list(each.source.specs(each.name, seed, context))[-1].at + 1
            for each in services
            if each.is_recorded
        ]
        span = max(times, default=round(self.requests / rate * 1e9))
        demand = Demand(rate)
        taken = select_requests(services, demand, self.token_cost, span, seed, context)
        return custom_workload(testbed, services, taken, seed, self.token_cost)[0]


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate's engine at one rate."""

    course: Course
    setup: Setup
    rate: float  # requests per second
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a trial over all its windows. Warm-ups are not counted."""

    rate: float
    good: Mapping[str, int]  # requests inside their budgets, by lane
    offered: Mapping[str, int]
    tallies: Tallies  # by lane and block of time, for the interval of a capacity
    device_seconds: float  # of all steps
    served: int  # requests that these steps served; whoever is turned away makes none cheaper
    step: int  # nanoseconds: p95 of the steps' or groups' times, in the window where it is longest

    @property
    def attainment(self) -> dict[str, float]:
        """Good over offered, by lane; lanes without requests are left out."""
        return {lane: self.good[lane] / n for lane, n in self.offered.items() if n}

    @property
    def tried(self) -> TriedRate:
        """The rate and its attainment, as a capacity search needs them."""
        return TriedRate(self.rate, self.attainment)

    @property
    def cost(self) -> float:
        """Device-seconds per served request."""
        return self.device_seconds / max(1, self.served)


def run_trial(trial: Trial) -> Score:
    """Serve the windows in virtual time. Runs in a worker."""
    served = [_simulated(trial, window) for window in trial.windows]
    figures = [each for each, _ in served]
    lanes = list(figures[0].lanes)
    return Score(
        rate=trial.rate,
        good={name: sum(each.lanes[name].good for each in figures) for name in lanes},
        offered={name: sum(each.lanes[name].offered for each in figures) for name in lanes},
        tallies=sum_repeats([each.tallies for each in figures]),
        device_seconds=sum(each.engine.busy * each.engine.seconds for each in figures),
        served=sum(round(e.engine.requests_per_second * e.engine.seconds) for e in figures),
        step=max(step for _, step in served),
    )


def _simulated(trial: Trial, window: int) -> tuple[Figures, int]:
    course, setup = trial.course, trial.setup
    calibration = calibration_at(course.calibration, "slots", setup.slots)
    testbed = noisy_testbed(calibration, course.seed, window)
    work = course.work(window, trial.rate, testbed)
    outcome = run_of(course, setup, testbed, work).serve()
    figures = figures_of("", window, outcome, work, testbed.num_blocks)
    is_group = not isinstance(setup.policies.join, Continuous)
    return figures, longest_step(outcome.steps, is_group)


def run_of(course: Course, setup: Setup, testbed: Testbed, work: Workload) -> Run:
    """Make a run of these requests on any testbed."""
    limit = round(work.window * (1 + DRAIN))
    rules = course.enforce, work.keys
    return Run(testbed, setup.policies, setup.lanes, work.requests, limit, *rules)


def longest_step(steps: Sequence[StepRow], is_group: bool) -> int:
    """The TAIL percentile of the steps' times in nanoseconds; with groups, of the groups' times.

    A group ends with the step after which no sequence runs.
    """
    spent, times = 0, list[int]()
    for row in steps:
        spent += row.nanoseconds
        if not is_group or not row.running:
            times.append(spent)
            spent = 0
    times.sort()
    return times[-(-len(times) * round(100 * TAIL) // 100) - 1] if times else 0


# -- the highest rate


@dataclass(frozen=True, slots=True)
class CapacityTrial:
    """A search for the highest rate at which a candidate's engine keeps every lane."""

    course: Course
    setup: Setup
    windows: tuple[int, ...]
    begin: float  # the rate to begin with
    ends: tuple[float, float]  # the lowest and the highest rate to try
    tolerance: float = TOLERANCE
    known: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True)
class Rated:
    """A capacity, its interval, and the score of each rate that was tried."""

    found: Found
    scores: Mapping[float, Score]  # by rate

    @property
    def rate(self) -> float:
        """The highest rate that keeps every lane; 0: none does."""
        return self.found.capacity.rate

    @classmethod
    def of(cls, score: Score) -> Self:
        """Make it from the score of one rate: the capacity is that rate if kept, else 0."""
        tried, tallies = score.tried, {score.rate: score.tallies}
        rate = score.rate if tried.kept else 0.0
        interval = capacity_interval(tallies, rate, 1, 0)
        return cls(Found(Capacity(rate, (rate, inf), (tried,)), interval), {score.rate: score})

    @property
    def score(self) -> Score:
        """The score at that rate; if there is none, at the rate with the best worst lane (ties:
        the lower rate)."""
        if self.rate:
            return self.scores[self.rate]
        return max(self.scores.values(), key=lambda each: (each.tried.least, -each.rate))


def run_capacity_trial(trial: CapacityTrial) -> Rated:
    """Search from `begin` up; if no rate is kept, from the lowest. Runs in a worker."""
    scores = {each.rate: each for each in trial.known}

    def serve(rate: float) -> dict[str, float]:
        scores[rate] = run_trial(Trial(trial.course, trial.setup, rate, trial.windows))
        return scores[rate].attainment

    low, high = trial.ends
    known = [each.tried for each in trial.known]
    begin = min(max(trial.begin, low), high)
    found = search_capacity(serve, begin, high, trial.tolerance, known)
    if not found.rate and begin > low:
        found = search_capacity(serve, low, high, trial.tolerance, found.tried)
    tallies = {rate: each.tallies for rate, each in scores.items()}
    interval = capacity_interval(tallies, found.rate, 1, trial.course.seed)
    return Rated(Found(found, interval), scores)
