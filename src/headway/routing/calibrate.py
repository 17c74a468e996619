"""calibrate_cascade: choose a cascade's threshold from labelled answers."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.errors import SettingError
from headway.routing.judges import Normalise, plain
from headway.routing.request import RouteAnswer

COVERED = 0.9  # share that intervals cover; so a lower end holds in 95 of 100 calibrations
LEAST = 20  # with fewer requests, no threshold is chosen
CUTS = 200  # thresholds to try; with few requests, up to twice as many are tried


@dataclass(frozen=True, slots=True)
class Labelled:
    """One request that both targets have answered."""

    score: float  # the small target's confidence: the mean log-probability of its answer
    small_is_right: bool
    large_is_right: bool = True


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold found, and the cascade's quality with it. Shares are of the given requests."""

    threshold: float  # for Confident; nan: no threshold is sure to be good enough
    quality: float  # share of the cascade's answers that are right
    low: float  # 90 % interval of the quality
    high: float
    escalated: float  # share of requests that go to the large target
    n: int
    reason: str  # in words; without a threshold: why there is none

    @property
    def is_found(self) -> bool:
        """Whether there is a threshold."""
        return not math.isnan(self.threshold)


def paired(
    answers: Iterable[tuple[RouteAnswer, RouteAnswer]], normalise: Normalise = plain
) -> list[Labelled]:
    """Label pairs of the small and the large target's answers when the right ones are unknown. The
    large target's answer counts as right. The small one's is right if it equals that."""
    return [
        Labelled(small.logprob, normalise(small) == normalise(large)) for small, large in answers
    ]


def calibrate_cascade(given: Sequence[Labelled], quality: float) -> Calibration:
    """Choose the lowest threshold with which a cascade is reliably right in this share of requests.

    The search tries thresholds downward, from the one that escalates every request. It stops at the
    first that fails: an exact binomial test at 5 % cannot rule out that its quality is below the
    wanted one. Because the order is fixed, the tests need no correction for their number (Learn
    then Test, Angelopoulos et al., 2021). The requests must be independent, and must resemble
    future requests.

    Raises SettingError for a quality that is not between 0 and 1, or for a score that is nan.
    """
    if not 0 < quality < 1:
        raise SettingError(f"a quality of {quality} is none that can be tested: 0 < quality < 1")
    if any(math.isnan(each.score) for each in given):
        raise SettingError("a score is nan: did the small target return log-probabilities?")
    if len(given) < LEAST:
        return _none(given, f"{len(given)} requests are too few: {LEAST} are needed at least")
    best: _Cut | None = None
    for cut in _cuts(given):
        if tail(cut.right, len(given), quality) > (1 - COVERED) / 2:
            break
        best = cut
    if best is None:
        return _none(given, _why_none(sum([each.large_is_right for each in given]), given, quality))
    return best.calibration(len(given))


class _Cut(NamedTuple):
    """A threshold, and the result of a cascade that uses it on the given requests."""

    threshold: float
    kept: int  # requests that the small target answers
    right: int  # right answers of the cascade

    def calibration(self, n: int) -> Calibration:
        low, high = share_bounds(self.right, n, COVERED)
        escalated = 1 - self.kept / n
        words = f"{self.right} of {n} right, {escalated:.1%} escalated"
        return Calibration(self.threshold, self.right / n, low, high, escalated, n, words)


def _cuts(given: Sequence[Labelled]) -> Iterator[_Cut]:
    """Yield the thresholds downward: the first escalates every request, each next one fewer."""
    ordered = sorted(given, key=lambda each: -each.score)
    right, step = sum([each.large_is_right for each in given]), max(1, len(given) // CUTS)
    yield _Cut(math.inf, 0, right)
    for kept, each in enumerate(ordered, 1):
        right += each.small_is_right - each.large_is_right
        is_last = kept == len(ordered)
        if is_last or (kept % step == 0 and ordered[kept].score < each.score):  # not among equals
            yield _Cut(each.score, kept, right)


def _why_none(right: int, given: Sequence[Labelled], quality: float) -> str:
    """Why not even the large target alone, with `right` right answers, is surely good enough."""
    n = len(given)
    if right / n < quality:
        return f"the large target itself is right in {right / n:.1%} only"
    low, _ = share_bounds(right, n, COVERED)
    return (
        f"too little data: the large target is right in {right / n:.1%} of {n}, which may be "
        f"{low:.1%}; more requests, or a lower quality"
    )


def _none(given: Sequence[Labelled], reason: str) -> Calibration:
    return Calibration(math.nan, math.nan, 0.0, 1.0, 1.0, len(given), reason)


def tail(right: int, n: int, share: float) -> float:
    """The probability of at least `right` right answers of n, if `share` is the true share."""
    if right == 0:
        return 1.0
    if not 0 < share < 1:
        return float(share >= 1)
    if right > n * share:
        return _sum_from(right, n, share)
    # At most the mean: sum the other, smaller tail instead, which loses no precision.
    return 1.0 - _sum_from(n - right + 1, n, 1 - share)


def _sum_from(right: int, n: int, share: float) -> float:
    """Sum the binomial terms from `right` on. The terms must fall from there."""
    if right > n:
        return 0.0
    choices = math.lgamma(n + 1) - math.lgamma(right + 1) - math.lgamma(n - right + 1)
    term = math.exp(choices + right * math.log(share) + (n - right) * math.log1p(-share))
    total, odds = term, share / (1 - share)
    for k in range(right, n):
        term *= odds * (n - k) / (k + 1)
        total += term
        if term <= total * 1e-17:
            break
    return min(1.0, total)


def share_bounds(right: int, n: int, covered: float) -> tuple[float, float]:
    """The exact interval (Clopper and Pearson, 1934) of the share `right` of n independent ones."""
    edge = (1 - covered) / 2
    low = _root(lambda share: tail(right, n, share) - edge) if right else 0.0
    high = _root(lambda share: tail(right + 1, n, share) - (1 - edge)) if right < n else 1.0
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    """The zero of a rising function on [0, 1], by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
