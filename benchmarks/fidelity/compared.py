"""Signed errors of the simulator, each beside the spread of two live runs of the same thing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import mean

from headway.core.request import NEVER
from headway.figures.percentile import percentile
from headway.runs.outcome import Outcome

METRICS = ("ttft", "tpot")
PERCENTS = (50, 90, 99)
MOST_LOAD, MOST_PERCENT = 80, 90  # that are judged
LIMITS = {"ttft": 0.10, "tpot": 0.05}  # that an error may have at p50 and p90, or the live spread


@dataclass(frozen=True, slots=True)
class Error:
    """One percentile of one metric: of one lane, or of all requests."""

    lane: str
    metric: str
    percent: int
    load: int  # percent of the capacity
    live: tuple[int, ...]  # nanoseconds: of each of the two, of all its rounds; NEVER: not served
    simulated: int  # of all rounds and seeds; NEVER: not served

    @property
    def is_served(self) -> bool:
        return NEVER not in (*self.live, self.simulated)

    @property
    def signed(self) -> float:
        """Below 0: simulated too short. Infinite where it was not served, live or simulated."""
        if not self.is_served:
            return inf
        return self.simulated / mean(self.live) - 1

    @property
    def spread(self) -> float:
        return (max(self.live) - min(self.live)) / mean(self.live)

    @property
    def limit(self) -> float:
        return max(LIMITS[self.metric], self.spread)

    @property
    def is_judged(self) -> bool:
        return self.load <= MOST_LOAD and self.percent <= MOST_PERCENT

    @property
    def holds(self) -> bool:
        return abs(self.signed) <= self.limit

    @property
    def name(self) -> str:
        lane = f"_{self.lane}" if self.lane else ""
        return f"err_{self.metric}_p{self.percent}_at{self.load}{lane}"


def errors(
    lanes: Iterable[str],
    load: int,
    live: Sequence[Sequence[Outcome]],
    simulated: Sequence[Outcome],
) -> list[Error]:
    """live: the rounds of each of the two runs. Each error is of all their requests together, if
    they are enough for the percentile. If they were not served, it is kept only if it is judged."""
    found = list[Error]()
    for lane in ("", *lanes):
        for metric in METRICS:
            for percent in PERCENTS:
                said = [_percentile(rounds, lane, metric, percent) for rounds in (*live, simulated)]
                if all(said):
                    *real, priced = said
                    error = Error(lane, metric, percent, load, tuple(real), priced)
                    if error.is_judged or error.is_served:
                        found.append(error)
    return found


def judged(lanes: Iterable[str], loads: Iterable[int]) -> list[str]:
    """Names of the errors that are judged if there are enough requests."""
    wanted = [
        Error(lane, metric, percent, load, (), 0)
        for load in loads
        for lane in ("", *lanes)
        for metric in METRICS
        for percent in PERCENTS
    ]
    return [each.name for each in wanted if each.is_judged]


def unsaid(lanes: Iterable[str], loads: Iterable[int], rows: Iterable[Error]) -> list[str]:
    """Names of the errors that would be judged, but had too few requests."""
    said = {each.name for each in rows}
    return [name for name in judged(lanes, loads) if name not in said]


def _percentile(outcomes: Sequence[Outcome], lane: str, metric: str, percent: int) -> int:
    """Nanoseconds; 0: too few requests; NEVER: the request at the percentile was not served."""
    found = percentile(_all(outcomes, lane, metric), percent)
    if found is None and (first := percentile(_all(outcomes, lane, "ttft"), percent)) == NEVER:
        return first  # enough were asked, and too few had a second token
    return 0 if found is None else found


def _all(outcomes: Iterable[Outcome], lane: str, metric: str) -> list[int]:
    return [each for outcome in outcomes for each in values(outcome, lane, metric)]


def values(outcome: Outcome, lane: str, metric: str) -> list[int]:
    """lane: empty for all of them. Requests that were not served have waited for ever."""
    return [
        getattr(row, metric)
        for row in outcome.requests
        if lane in ("", row.lane) and (metric != "tpot" or row.generated >= 2)
    ]


def attainments(found: Mapping[str, float]) -> str:
    return ", ".join(f"{lane} {share:.1%}" for lane, share in found.items())
