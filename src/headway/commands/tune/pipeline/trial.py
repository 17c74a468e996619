"""Simulated trials of a sizing: windows of traffic, offered at a rate (Course)."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from headway.commands.tune.pipeline.sizing import Sizing, sized
from headway.errors import SettingError
from headway.figures.capacity import REQUIRED_ATTAINMENT, Capacity, search_capacity
from headway.figures.capacity_interval import (
    BLOCKS,
    CapacityInterval,
    Tally,
    capacity_interval,
)
from headway.pipelines.simulated.plan import Plan
from headway.pipelines.simulated.simulate import simulate_pipeline
from headway.traffic.trace import Arrival

SECOND = 1_000_000_000
WINDOWS = 4  # the first and the third are for tuning, the second and the fourth are held out
WARM = 0.1  # share of a window's workflows, its first ones, not counted: nothing is learned yet
TUNING, HELD_OUT = (0, 2), (1, 3)
WORKFLOWS = "workflows"
Window = tuple[float, ...]  # arrival times in seconds, at one workflow per second on average


def drawn_windows(requests: int, seed: int) -> list[Window]:
    """Windows of Poisson arrivals."""
    windows = list[Window]()
    for number in range(WINDOWS):
        draw, at, times = Random(f"{seed} workflows {number}"), 0.0, list[float]()
        for _ in range(requests):
            at += draw.expovariate(1.0)
            times.append(at)
        windows.append(tuple(times))
    return windows


def trace_windows(arrivals: Sequence[Arrival], requests: int) -> list[Window]:
    """Windows of a trace with equally many arrivals each. Raises SettingError if the trace is too
    short, or all arrivals of a window come at one moment."""
    each = min(requests, len(arrivals) // WINDOWS)
    if each < BLOCKS:
        least = BLOCKS * WINDOWS
        raise SettingError(f"the trace has {len(arrivals)} arrivals; tuning needs {least}")
    windows = list[Window]()
    for number in range(WINDOWS):
        begin = len(arrivals) * number // WINDOWS
        times = [arrival.at for arrival in arrivals[begin : begin + each]]
        if not (length := times[-1] - times[0]):
            raise SettingError("a quarter of the trace's arrivals come at one moment: no rate")
        scale = (each - 1) / length
        windows.append(tuple([(at - times[0]) * scale for at in times]))
    return windows


@dataclass(frozen=True, slots=True)
class Course:
    """What every sizing is tried on. It is sent to worker processes."""

    plan: Plan
    windows: tuple[Window, ...]
    seed: int
    most: float  # workflows per second, the highest rate to offer: no sizing sustains it

    def counted(self, sizing: Sizing, rate: float, window: int) -> list[Tally]:
        """The offered and the good workflows of each block of the window, warm-up excluded."""
        times = [round(at / rate * SECOND) for at in self.windows[window]]
        deadline = round(self.plan.deadline * SECOND)
        graph = sized(self.plan, sizing).graph
        found = simulate_pipeline(graph, times, deadline=deadline, seed=self.seed + window)
        good = {int(row.id) for row in found.rows if row.good}  # numbers, from 1
        first = int(len(times) * WARM)
        offered, kept = [0] * (BLOCKS // 2), [0] * (BLOCKS // 2)
        for place in range(len(times) - first):
            block = place * (BLOCKS // 2) // (len(times) - first)
            offered[block] += 1
            kept[block] += first + place + 1 in good
        return list(zip(offered, kept, strict=True))

    def tallies(self, sizing: Sizing, rate: float, windows: Sequence[int]) -> list[Tally]:
        """The tallies of several windows, one after the other."""
        found = list[Tally]()
        for window in windows:
            found += self.counted(sizing, rate, window)
        return found


def attained(tallies: Sequence[Tally]) -> float:
    """The share of the workflows that were good."""
    return sum([good for _, good in tallies]) / max(1, sum([offered for offered, _ in tallies]))


@dataclass(frozen=True, slots=True)
class Rated:
    """The highest rate of a sizing that keeps 95 % of the workflows inside their deadline."""

    sizing: Sizing
    capacity: Capacity
    sure: CapacityInterval
    attainment: float  # at that rate

    @property
    def rate(self) -> float:
        return self.capacity.rate


def rated(course: Course, sizing: Sizing, windows: Sequence[int], low: float) -> Rated:
    """Measure a sizing's capacity. low: the rate to begin with."""
    tried = dict[float, list[Tally]]()

    def serve(rate: float) -> dict[str, float]:
        tried[rate] = course.tallies(sizing, rate, windows)
        return {WORKFLOWS: attained(tried[rate])}

    begin = min(low, course.most)
    while not (found := search_capacity(serve, begin, course.most)).rate and begin > low / 1_000:
        begin /= 8
    by_rate = {rate: {WORKFLOWS: tuple(each)} for rate, each in tried.items()}
    sure = capacity_interval(by_rate, found.rate, 1, course.seed, REQUIRED_ATTAINMENT)
    return Rated(sizing, found, sure, attained(tried.get(found.rate, [])))


def kept_share(job: tuple[Course, Sizing, float]) -> tuple[Sizing, float]:
    """A sizing's attainment at a rate, on the worse of the tuning windows; 0.0 if either misses
    the target."""
    course, sizing, rate = job
    worst = 1.0
    for window in TUNING:
        worst = min(worst, attained(course.counted(sizing, rate, window)))
        if worst < REQUIRED_ATTAINMENT:
            return sizing, 0.0
    return sizing, worst


def tuned(job: tuple[Course, Sizing, float]) -> Rated:
    """A sizing's capacity on the tuning windows."""
    course, sizing, low = job
    return rated(course, sizing, TUNING, low)


def held_out(job: tuple[Course, Sizing, float]) -> Rated:
    """A sizing's capacity on the held-out windows."""
    course, sizing, low = job
    return rated(course, sizing, HELD_OUT, low)
