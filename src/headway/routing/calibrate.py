"""calibrate_cascade: the threshold of a cascade, chosen from answers whose worth is known."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headway.errors import SettingError
from headway.routing.judges import Normalise, plain
from headway.routing.request import RouteAnswer

COVERED = 0.9  # of intervals; so a lower end holds in 95 of 100 calibrations
LEAST = 20  # requests below which nothing is chosen
CUTS = 200  # thresholds that are tried, at most


@dataclass(frozen=True, slots=True)
class Labelled:
    """One request that both targets have answered."""

    score: float  # the small target's confidence: the mean log-probability of its answer
    small_is_right: bool
    large_is_right: bool = True


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found. Shares are of the requests that were given."""

    threshold: float  # for Confident; nan: there is none that is sure to be good enough
    quality: float  # share of right answers of the cascade
    low: float  # interval of the quality, 90 %
    high: float
    escalated: float  # share of requests that go to the large target
    n: int
    reason: str  # in words; where there is no threshold, why

    @property
    def is_found(self) -> bool:
        """Whether there is a threshold."""
        return not math.isnan(self.threshold)


def paired(
    answers: Iterable[tuple[RouteAnswer, RouteAnswer]], normalise: Normalise = plain
) -> list[Labelled]:
    """Pairs of the small and the large target's answers, where nobody knows which are right: the
    large one's count as right, and the small one's where they are equal to it."""
    return [
        Labelled(small.logprob, normalise(small) == normalise(large)) for small, large in answers
    ]


def calibrate_cascade(given: Sequence[Labelled], quality: float) -> Calibration:
    """The lowest threshold with which a cascade is right in this share of requests, surely enough.

    Thresholds are tried downward, from that at which every request is escalated, and the search
    ends at the first that might not do: one whose quality may, by an exact binomial test at 5 %, be
    less than what is wanted. In this fixed order the tests need no correction for their number
    (Learn then Test, Angelopoulos et al., 2021). Requests must be independent, and like those to
    come.

    Raises SettingError for a quality that is not between 0 and 1, or a score that is no number.
    """
    if not 0 < quality < 1:
        raise SettingError(f"a quality of {quality} is none that can be tested: 0 < quality < 1")
    if any(math.isnan(each.score) for each in given):
        raise SettingError("a score is nan: did the small target return log-probabilities?")
    if len(given) < LEAST:
        return _none(given, f"{len(given)} requests are too few: {LEAST} are needed at least")
    found: Calibration | None = None
    for threshold in _thresholds(given):
        tried = _with(given, threshold)
        right = round(tried.quality * tried.n)
        if tail(right, tried.n, quality) > (1 - COVERED) / 2:
            return found or _none(given, _why_none(tried, quality))
        found = tried
    assert found
    return found


def _thresholds(given: Sequence[Labelled]) -> list[float]:
    """Downward: infinity, then quantiles of the scores."""
    scores = sorted({each.score for each in given}, reverse=True)
    step = max(1, math.ceil(len(scores) / CUTS))
    return [math.inf, *scores[step - 1 :: step]]


def _with(given: Sequence[Labelled], threshold: float) -> Calibration:
    """What a cascade with this threshold would have done."""
    n = len(given)
    kept = [each.score >= threshold for each in given]
    right = sum(
        [
            each.small_is_right if keep else each.large_is_right
            for each, keep in zip(given, kept, strict=True)
        ]
    )
    low, high = share_bounds(right, n, COVERED)
    escalated = 1 - sum(kept) / n
    words = f"{right} of {n} right, {escalated:.1%} escalated"
    return Calibration(threshold, right / n, low, high, escalated, n, words)


def _why_none(tried: Calibration, quality: float) -> str:
    """Why not even the large target alone is surely good enough."""
    if tried.quality < quality:
        return f"the large target itself is right in {tried.quality:.1%} only"
    return (
        f"too little data: the large target is right in {tried.quality:.1%} of {tried.n}, which "
        f"may be {tried.low:.1%}; more requests, or a lower quality"
    )


def _none(given: Sequence[Labelled], reason: str) -> Calibration:
    return Calibration(math.nan, math.nan, 0.0, 1.0, 1.0, len(given), reason)


def tail(right: int, n: int, share: float) -> float:
    """How probable so many right answers or more are, of n, if this is the true share."""
    if right == 0:
        return 1.0
    if not 0 < share < 1:
        return float(share >= 1)
    whole = math.lgamma(n + 1)
    logs = [
        whole
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(share)
        + (n - k) * math.log1p(-share)
        for k in range(right, n + 1)
    ]
    return min(1.0, math.fsum([math.exp(each) for each in logs]))


def share_bounds(right: int, n: int, covered: float) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson, 1934): right of n independent ones."""
    edge = (1 - covered) / 2
    low = _root(lambda share: tail(right, n, share) - edge) if right else 0.0
    high = _root(lambda share: tail(right + 1, n, share) - (1 - edge)) if right < n else 1.0
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function of [0, 1] is 0."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
