"""How what makes steps differ outlasts them: parts of it that fade within milliseconds, or seconds.

It fades with time and not with steps: of steps of 10 and of 4 ms of one model, two thirds of it
were left 20 ms later, half 45 and a quarter 150. A single correlation with the step before fades
within a dozen steps, and a machine's slow seconds do not. Waits and mean gaps are sums over steps,
whose tails are those of the slow part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist, mean

from headway.commands.calibrate.fit import nonnegative
from headway.core.cost.step_cost import WHOLE, Echo

TIME_CONSTANTS = tuple(4_000_000 * 4**power for power in range(7))  # nanoseconds: 4 ms to 16 s
LAGS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # steps
ENOUGH = 100  # pairs of steps that lie so far apart, to know their correlation
SURE = 10.0  # weight of that the shares add up to all of it
LEAST = 20  # thousandths: a smaller part is none


@dataclass(frozen=True, slots=True)
class _LaggedPairs:
    """Pairs of steps of which the one is so many steps behind the other."""

    times: Sequence[int]  # nanoseconds from the one's beginning to the other's
    correlation: float


def correlation_parts(scores: Sequence[float], times: Sequence[int]) -> tuple[Echo, ...]:
    """scores: normal scores of the steps' residuals. times: when they began, ascending.

    Exponentials of time, none negative, that add up to the autocorrelation; the rest is each
    step's own. Those are left out that fade before the next step, or not in what was measured.
    """
    known = [_lagged_pairs(scores, times, lag) for lag in LAGS if len(scores) - lag >= ENOUGH]
    reach = [mean(each.times) for each in known]
    constants = [each for each in TIME_CONSTANTS if known and reach[0] <= 4 * each <= 4 * reach[-1]]
    if not constants:
        return ()
    rows, targets = [[SURE] * (len(constants) + 1)], [SURE]  # the last is what each step has alone
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
    """What numbers of a normal distribution would have these ranks."""
    order = sorted(range(len(factors)), key=factors.__getitem__)
    scores = [0.0] * len(factors)
    for rank, at in enumerate(order):
        scores[at] = NormalDist().inv_cdf((rank + 0.5) / len(factors))
    return scores


def _lagged_pairs(scores: Sequence[float], times: Sequence[int], lag: int) -> _LaggedPairs:
    """The scores have mean 0 and variance 1."""
    return _LaggedPairs(
        [later - time for time, later in zip(times, times[lag:], strict=False)],
        mean(map(float.__mul__, scores, scores[lag:])),
    )
