"""By how much each step differs from its price: drawn step by step, and correlated in time."""

from collections.abc import Generator
from math import erf, exp, sqrt
from random import Random
from statistics import NormalDist

from headway.core.cost.step_cost import WHOLE, Echo, StepCost

HALF = sqrt(0.5)
AHEAD = 256  # steps drawn at once
WIDE, FINE = 5, 100  # standard deviations that are told apart, and parts of each
MIDDLE, WIDEST = WIDE * FINE + 0.5, 2 * WIDE * FINE  # places of none and of most of them
# Equally likely, drawn in a third of random.gauss's time: up to 3.7 standard deviations, where the
# factors of a few dozen quantiles have long come to their ends.
LEVELS = 4_096
NORMAL = [NormalDist().inv_cdf((place + 0.5) / LEVELS) for place in range(LEVELS)]


class Noise:
    """One normal number per step, the sum of chains that fade with time (Ornstein and Uhlenbeck).

        x[n] = kept x[n-1] + sqrt(1 - kept^2) e[n],  kept = exp(-time since step n-1 began / lasts)

    The nth e belongs to step n; steps are asked for in their order. Drawn independently the tails
    of long waits come out too thin: a slow second has many slow steps, small and large. And if it
    lasted for so many steps instead of so much time, slow moments were longest where steps are:
    in bursts of prompts, whose waits came out too long.
    """

    def __init__(self, cost: StepCost, seed: int) -> None:
        # By regime, thousandths for each hundredth of a standard deviation: looked up, because one
        # is wanted for every step and a quantile takes longer than the rest of its price.
        self._factors = [
            [
                residuals.at((1 + erf((place / FINE - WIDE) * HALF)) / 2)
                for place in range(WIDEST + 1)
            ]
            for residuals in cost.residuals
        ]
        alone = WHOLE - sum(echo.share for echo in cost.echoes)
        chains = [
            _chain(echo, Random(f"{seed} steps {place}"))
            for place, echo in enumerate([Echo(alone, 0), *cost.echoes])
            if echo.share
        ]
        for each in chains:
            next(each)
        self._chains = [each.send for each in chains]
        self._began = 0  # the step before, in nanoseconds

    def next(self, now: int, regime: int) -> int:
        """Thousandths of its price that the next step takes, which begins now."""
        gone, self._began, normal = now - self._began, now, MIDDLE
        for chain in self._chains:
            normal += chain(gone)
        factors = self._factors[regime]
        return factors[min(int(normal), WIDEST)] if normal > 0 else factors[0]


def _chain(echo: Echo, random: Random) -> Generator[float, int, None]:
    """Numbers of this variance, in FINE parts of a standard deviation, that fade; is sent the
    nanoseconds from one to the next. A generator, because no other way to keep a value is as quick.
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
