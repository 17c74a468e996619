"""By how much each step differs from its price: drawn, correlated in time, keyed by the step."""

from collections.abc import Iterator
from itertools import islice
from math import erf, sqrt
from random import Random

from headway.core.cost import KNOWN, Echo, StepCost

HALF = sqrt(0.5)
AHEAD = 256  # steps drawn at once


class Noise:
    """One normal number per step, the sum of chains x[n] = kept x[n-1] + sqrt(1 - kept^2) e[n].

    The nth number belongs to step n, whoever asks for it and in which order; so steps that are
    skipped over in one go are priced as they would have been one by one. Drawn independently the
    tails of long waits come out too thin: a slow second has many slow steps, small and large.
    """

    def __init__(self, cost: StepCost, seed: int) -> None:
        self._residuals = cost.residuals
        own = Echo(KNOWN - sum(echo.share for echo in cost.echoes), 0)
        self._chains = [
            _chain(echo, Random(f"{seed} steps {kept}"))
            for kept, echo in enumerate([own, *cost.echoes])
            if echo.share
        ]
        self._normal = list[float]()

    def at(self, step: int, regime: int) -> int:
        """Thousandths of its price that this step takes; steps count from 1."""
        residuals, normal = self._residuals[regime], self._normal
        if len(residuals.quantiles) == 1:
            return residuals.quantiles[0]
        while len(normal) <= step:
            normal += map(sum, zip(*[islice(chain, AHEAD) for chain in self._chains], strict=True))
        return residuals.at((1 + erf(normal[step] * HALF)) / 2)


def _chain(echo: Echo, random: Random) -> Iterator[float]:
    """Normal numbers of this variance and correlation, for ever."""
    scale, kept, gauss = sqrt(echo.share / KNOWN), echo.kept / KNOWN, random.gauss
    value, fresh = scale * gauss(), scale * sqrt(1 - kept**2)
    while True:
        yield value
        value = kept * value + fresh * gauss()
