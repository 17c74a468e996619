"""The correlation of step times over time, as a sum of exponentials of milliseconds to seconds.

A slow step is followed by slow steps. The correlation fades with time, not with the number of
steps: for one model, in steps of 10 ms and of 4 ms alike, two thirds of it were left after 20 ms,
half after 45 ms and a quarter after 150 ms. A single correlation with the previous step would fade
within a dozen steps, but a machine's slow seconds last longer. Waits and mean gaps are sums over
steps, so the slow part decides their tails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist, mean

from headway.commands.calibrate.fit import nonnegative
from headway.core.cost.step_cost import WHOLE, Echo

TIME_CONSTANTS = tuple(4_000_000 * 4**power for power in range(7))  # nanoseconds: 4 ms to 16 s
LAGS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # steps
ENOUGH = 100  # pairs of steps at one lag; with fewer, their correlation is unknown
SURE = 10.0  # weight of the equation that makes the shares add up to 1
LEAST = 20  # thousandths; a smaller part is dropped


@dataclass(frozen=True, slots=True)
class _LaggedPairs:
    """All pairs of steps that are one lag apart."""

    times: Sequence[int]  # nanoseconds between the starts of the two steps
    correlation: float


def correlation_parts(scores: Sequence[float], times: Sequence[int]) -> tuple[Echo, ...]:
    """The exponentials of time whose sum is the autocorrelation of the scores.

    scores: the normal scores of the steps' residuals. times: when the steps began, in nanoseconds,
    ascending. No part is negative; the remainder is independent noise of each step. Time constants
    that are too short for the next step, or too long for the measurement, are left out. Empty if
    there are too few steps. Raises SettingError if scipy is missing.
    """
    known = [_lagged_pairs(scores, times, lag) for lag in LAGS if len(scores) - lag >= ENOUGH]
    reach = [mean(each.times) for each in known]
    constants = [each for each in TIME_CONSTANTS if known and reach[0] <= 4 * each <= 4 * reach[-1]]
    if not constants:
        return ()
    rows, targets = [[SURE] * (len(constants) + 1)], [SURE]  # last column: independent noise
    for apart in known:
        weight = sqrt(len(apart.times) / len(known[0].times))
        left = [mean(exp(-time / each) for time in apart.times) for each in constants]
        rows.append([*(weight * each for each in left), 0.0])
        targets.append(weight * apart.correlation)
    shares = nonnegative(rows, targets)
    whole = [int(WHOLE * share / sum(shares)) for share in shares[:-1]]
    parts = zip(whole, constants, strict=True)
    return tuple(Echo(share, each) for share, each in parts if share >= LEAST)


def normal_scores(factors: Sequence[float]) -> list[float]:
    """The standard normal quantile for each factor's rank, in the same order."""
    order = sorted(range(len(factors)), key=factors.__getitem__)
    scores = [0.0] * len(factors)
    for rank, at in enumerate(order):
        scores[at] = NormalDist().inv_cdf((rank + 0.5) / len(factors))
    return scores


def _lagged_pairs(scores: Sequence[float], times: Sequence[int], lag: int) -> _LaggedPairs:
    """The pairs at one lag. The scores must have mean 0 and variance 1."""
    return _LaggedPairs(
        [later - time for time, later in zip(times, times[lag:], strict=False)],
        mean(map(float.__mul__, scores, scores[lag:])),
    )
