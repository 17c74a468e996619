"""How what makes steps differ outlasts them: parts of it that fade within few steps, or many.

A single correlation with the step before fades within a dozen steps, and a machine's slow seconds
do not: of steps of one model on a shared machine a fifth to a third was still there 64 steps
later. Waits and mean gaps are sums over steps, whose tails are those of the slow part.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, mean

from headway.core.cost import KNOWN, Echo
from headway.tools.fit import nonnegative

KEPT = (607, 882, 969, 992, 998)  # thousandths a step later: lasts 2, 8, 32, 128 or 512 steps
LAGS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ENOUGH = 100  # pairs of steps that lie so far apart, to know their correlation
SURE = 10.0  # weight of that the shares add up to all of it
LEAST = 20  # thousandths: a smaller part is none


def echoes(scores: Sequence[float], numbers: Sequence[int]) -> tuple[Echo, ...]:
    """scores: normal scores of the steps' residuals. numbers: of the steps, ascending, with gaps.

    Exponentials, none negative, that add up to the autocorrelation; the rest is each step's own.
    """
    found = {lag: each for lag in LAGS if (each := _correlation(scores, numbers, lag))}
    kept = [each for each in KEPT if 1 / (1 - each / KNOWN) <= max(found, default=0)]
    if not kept:
        return ()
    most = max(pairs for _, pairs in found.values())
    rows, targets = [[SURE] * (len(kept) + 1)], [SURE]  # the last is what each step has alone
    for lag, (correlation, pairs) in found.items():
        weight = sqrt(pairs / most)
        rows.append([*(weight * (each / KNOWN) ** lag for each in kept), 0.0])
        targets.append(weight * correlation)
    shares = nonnegative(rows, targets)
    whole = [int(KNOWN * share / sum(shares)) for share in shares[:-1]]
    pairs_of = zip(whole, kept, strict=True)
    return tuple(Echo(share, each) for share, each in pairs_of if share >= LEAST)


def normal_scores(factors: Sequence[float]) -> list[float]:
    """What numbers of a normal distribution would have these ranks."""
    order = sorted(range(len(factors)), key=factors.__getitem__)
    scores = [0.0] * len(factors)
    for rank, at in enumerate(order):
        scores[at] = NormalDist().inv_cdf((rank + 0.5) / len(factors))
    return scores


def _correlation(
    scores: Sequence[float], numbers: Sequence[int], lag: int
) -> tuple[float, int] | None:
    """Of steps so far apart, and of how many; the scores have mean 0 and variance 1."""
    of = dict(zip(numbers, scores, strict=True))
    pairs = [score * of[number + lag] for number, score in of.items() if number + lag in of]
    return (mean(pairs), len(pairs)) if len(pairs) >= ENOUGH else None
