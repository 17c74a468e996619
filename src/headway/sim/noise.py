"""By how much each step differs from its price: drawn, correlated in time, keyed by the step."""

from math import erf, sqrt
from random import Random

from headway.core.cost import KNOWN, Residuals, StepCost

HALF = sqrt(0.5)


class Noise:
    """One chain of normal numbers per regime, x[n] = echo x[n-1] + sqrt(1 - echo^2) e[n].

    The nth number belongs to step n, whoever asks for it and in which order; so steps that are
    skipped over in one go are priced as they would have been one by one. Drawn independently the
    tails of long waits come out too thin: a slow second has many slow steps.
    """

    def __init__(self, cost: StepCost, seed: int) -> None:
        self._chains = [
            _Chain(residuals, Random(f"{seed} steps {regime}"))
            for regime, residuals in enumerate(cost.residuals)
        ]

    def at(self, step: int, regime: int) -> int:
        """Thousandths of its price that this step takes; steps count from 1."""
        return self._chains[regime].at(step)


class _Chain:
    def __init__(self, residuals: Residuals, random: Random) -> None:
        self.residuals, self.random = residuals, random
        self.echo = residuals.echo / KNOWN
        self.fresh = sqrt(1 - self.echo**2)
        self.normal = [random.gauss()]

    def at(self, step: int) -> int:
        if len(self.residuals.quantiles) == 1:
            return self.residuals.quantiles[0]
        normal = self.normal
        if len(normal) <= step:
            echo, fresh, gauss = self.echo, self.fresh, self.random.gauss
            while len(normal) <= step:
                normal.append(echo * normal[-1] + fresh * gauss())
        return self.residuals.at((1 + erf(normal[step] * HALF)) / 2)
