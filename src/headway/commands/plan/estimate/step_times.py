"""What steps of a given composition take, in nanoseconds: the formulas' view of a cost model."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import floor
from statistics import fmean

from headway.core.cost.features import NONE, Features, row_features
from headway.core.cost.step_cost import WHOLE, Residuals, Rounding, StepCost


@dataclass(frozen=True, slots=True)
class StepTimes:
    """From a step's beginning to the next one's: the host's time behind it counts.

    Each at the mean of its residuals. The engine's sleep before a step (`wake`) is not in it, nor
    how an executor rounds tokens up: formulas take slopes, and stairs have none that mean anything.
    """

    cost: StepCost

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", replace(self.cost, rounding=Rounding()))

    def of(self, features: Features) -> float:
        spent = self.cost.predict(features) * _mean(self.cost.residuals[self.cost.regime(features)])
        return spent + self.cost.behind(features)

    def decoding(self, rows: float, context: float, more: Features = NONE) -> float:
        """Of so many rows of one token each; between two whole numbers, along the line."""
        below, each = floor(rows), row_features(round(context) - 1, 1, logits=1)
        low = self.of(_times(each, below) + more)
        if rows == below:
            return low
        high = self.of(_times(each, below + 1) + more)
        return low + (high - low) * (rows - below)

    def with_prompt(self, prompt: int, rows: float, context: float) -> float:
        """The same, and a whole prompt in it."""
        return self.decoding(rows, context, row_features(0, prompt, logits=1))

    def unseen(self, prompt: int) -> float:
        """Of them, nanoseconds behind the step of a prompt alone, for which nobody waits."""
        return float(self.cost.behind(row_features(0, prompt, logits=1)))

    def group(self, prompt: int, size: float) -> float:
        """Of so many whole prompts and nothing else."""
        below, each = floor(size), row_features(0, prompt, logits=1)
        low = self.of(_times(each, below))
        if size == below:
            return low
        return low + (self.of(_times(each, below + 1)) - low) * (size - below)


def _mean(residuals: Residuals) -> float:
    """Of draws that are spread evenly over the quantiles, along the lines between them."""
    points = residuals.quantiles
    if len(points) == 1:
        return points[0] / WHOLE
    return fmean((low + high) / 2 for low, high in pairwise(points)) / WHOLE


def _times(each: Features, count: int) -> Features:
    return Features(
        each.tokens * count,
        each.rows * count,
        each.prompts * count,
        each.reads * count,
        each.pairs * count,
        each.logits * count,
        each.decodes if count else 0,
    )
