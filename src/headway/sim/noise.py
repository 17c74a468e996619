"""By how much each step differs from its price: drawn, correlated in time, keyed by the step."""

from collections.abc import Iterator
from itertools import islice
from math import erf, sqrt
from random import Random

from headway.core.cost import KNOWN, Echo, StepCost

HALF = sqrt(0.5)
AHEAD = 256  # steps drawn at once
WIDE, FINE = 5, 100  # standard deviations that are told apart, and parts of each


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
        self._normal = list[float]()

    def at(self, step: int, regime: int) -> int:
        """Thousandths of its price that this step takes; steps count from 1."""
        normal = self._normal
        while len(normal) <= step:
            normal += map(sum, zip(*[islice(chain, AHEAD) for chain in self._chains], strict=True))
        return self._factors[regime][round((min(max(normal[step], -WIDE), WIDE) + WIDE) * FINE)]


def _chain(echo: Echo, random: Random) -> Iterator[float]:
    """Normal numbers of this variance and correlation, for ever."""
    scale, kept, gauss = sqrt(echo.share / KNOWN), echo.kept / KNOWN, random.gauss
    value, fresh = scale * gauss(), scale * sqrt(1 - kept**2)
    while True:
        yield value
        value = kept * value + fresh * gauss()
