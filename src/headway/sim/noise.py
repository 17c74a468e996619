"""By how much each step differs from its price: drawn, correlated in time, keyed by the step."""

from collections.abc import Iterator
from itertools import accumulate
from math import erf, sqrt
from random import Random
from statistics import NormalDist

from headway.core.cost import KNOWN, Echo, StepCost

HALF = sqrt(0.5)
AHEAD = 256  # steps drawn at once
WIDE, FINE = 5, 100  # standard deviations that are told apart, and parts of each
# Equally likely, drawn in a third of random.gauss's time: up to 3.7 standard deviations, where the
# factors of a few dozen quantiles have long come to their ends.
LEVELS = 4_096
NORMAL = [NormalDist().inv_cdf((place + 0.5) / LEVELS) for place in range(LEVELS)]


class Noise:
    """One normal number per step, the sum of chains x[n] = kept x[n-1] + sqrt(1 - kept^2) e[n].

    The nth number belongs to step n, whoever asks for it and in which order; so steps that are
    skipped over in one go are priced as they would have been one by one. Drawn independently the
    tails of long waits come out too thin: a slow second has many slow steps, small and large.
    """

    def __init__(self, cost: StepCost, seed: int) -> None:
        # By regime, thousandths for each hundredth of a standard deviation: looked up, because one
        # is wanted for every step and a quantile takes longer than the rest of its price.
        self._factors = [
            [
                residuals.at((1 + erf((place / FINE - WIDE) * HALF)) / 2)
                for place in range(2 * WIDE * FINE + 1)
            ]
            for residuals in cost.residuals
        ]
        own = Echo(KNOWN - sum(echo.share for echo in cost.echoes), 0)
        self._chains = [
            _chain(echo, Random(f"{seed} steps {kept}"))
            for kept, echo in enumerate([own, *cost.echoes])
            if echo.share
        ]
        self._places = list[int]()  # of each step, in either list of factors

    def at(self, step: int, regime: int) -> int:
        """Thousandths of its price that this step takes; steps count from 1."""
        return self.ahead(step, 1, regime)[0]

    def ahead(self, step: int, count: int, regime: int) -> list[int]:
        """The same of so many steps, this one first."""
        places, factors = self._places, self._factors[regime]
        while len(places) < step + count:
            normal = map(sum, zip(*map(next, self._chains), strict=True))
            places += [round((min(max(each, -WIDE), WIDE) + WIDE) * FINE) for each in normal]
        return [factors[place] for place in places[step : step + count]]


def _chain(echo: Echo, random: Random) -> Iterator[list[float]]:
    """Normal numbers of this variance and correlation, for ever, AHEAD of them at a time."""
    scale, kept = sqrt(echo.share / KNOWN), echo.kept / KNOWN
    fresh, last = scale * sqrt(1 - kept**2), scale * random.gauss()
    while True:
        drawn = random.choices(NORMAL, k=AHEAD)
        line = list(accumulate(drawn, lambda x, e: kept * x + fresh * e, initial=last))
        last = line.pop()
        yield line
