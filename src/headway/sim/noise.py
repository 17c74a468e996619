"""Random residuals of step times, correlated in time (Noise)."""

from collections.abc import Generator
from functools import lru_cache
from math import erf, exp, sqrt
from random import Random
from statistics import NormalDist

from headway.core.cost.step_cost import WHOLE, Echo, Residuals, StepCost

HALF = sqrt(0.5)
AHEAD = 256  # steps drawn at once
WIDE, FINE = 5, 100  # standard deviations in the table of factors, and its entries for each
MIDDLE, WIDEST = WIDE * FINE + 0.5, 2 * WIDE * FINE  # entries of zero and of the most deviations
# Equally likely values, drawn in a third of random.gauss's time. They reach 3.7 standard
# deviations; the factors of a few dozen quantiles end well before that.
LEVELS = 4_096
NORMAL = [NormalDist().inv_cdf((place + 0.5) / LEVELS) for place in range(LEVELS)]


class Noise:
    """One normal number per step: the sum of chains that decay with time (Ornstein-Uhlenbeck).

        x[n] = kept x[n-1] + sqrt(1 - kept^2) e[n],  kept = exp(-time since step n-1 began / lasts)

    Step n always gets the random draw e[n]; steps must be asked for in order. Real slow seconds
    slow down all their steps, so independent draws make long waits too rare. Chains that decay per
    step instead of with time make slow moments last longest where steps are longest, in bursts of
    prompts, and waits there come out too long.
    """

    def __init__(self, cost: StepCost, seed: int) -> None:
        self._factors = [_factors(residuals) for residuals in cost.residuals]  # by regime
        alone = WHOLE - sum(echo.share for echo in cost.echoes)
        chains = [
            _chain(echo, Random(f"{seed} steps {place}"))
            for place, echo in enumerate([Echo(alone, 0), *cost.echoes])
            if echo.share
        ]
        for each in chains:
            next(each)
        self._chains = [each.send for each in chains]
        self._began = 0  # when the previous step began, in nanoseconds

    def next(self, now: int, regime: int) -> int:
        """How long the next step takes, in thousandths of its price. It begins now."""
        gone, self._began, normal = now - self._began, now, MIDDLE
        for chain in self._chains:
            normal += chain(gone)
        factors = self._factors[regime]
        return factors[min(int(normal), WIDEST)] if normal > 0 else factors[0]


@lru_cache(maxsize=64)
def _factors(residuals: Residuals) -> tuple[int, ...]:
    """The factor in thousandths for each hundredth of a standard deviation.

    Looking it up is faster: finding a quantile takes longer than pricing the step. A search makes
    hundreds of runs with the same residuals.
    """
    shares = [(1 + erf((place / FINE - WIDE) * HALF)) / 2 for place in range(WIDEST + 1)]
    return tuple([residuals.at(share) for share in shares])


def _chain(echo: Echo, random: Random) -> Generator[float, int, None]:
    """Yield the values of one chain, in units of 1/FINE of a standard deviation. Send it the
    nanoseconds since the last step began. A generator, because it is the fastest way to keep state.
    """
    scale, lasts = FINE * sqrt(echo.share / WHOLE), echo.lasts
    values = [scale * each for each in NORMAL]
    value, kept = scale * random.gauss(), 0.0
    gone = yield 0.0
    while True:
        for fresh in random.choices(values, k=AHEAD):
            if lasts:
                kept = exp(-gone / lasts)
            value = kept * value + sqrt(1 - kept * kept) * fresh
            gone = yield value
