"""The formulas' view of a cost model: mean nanoseconds of a step of a given composition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import expm1, floor
from statistics import fmean

from headway.core.cost.features import NONE, Features, row_features
from headway.core.cost.step_cost import WHOLE, Residuals, Rounding, StepCost


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Mean nanoseconds from the start of a step to the start of the next, by its composition.

    The time includes the host's work after the step and the mean of the residuals. It leaves out
    the wake-up after a sleep (`wake`) and the executor's rounding of tokens. A line replaces the
    staircase of matmul tiles, since formulas need slopes.

    With a depth of 2, the host works while another step is computed. A step then takes as long as
    the slower of the device and the host.
    """

    cost: StepCost
    depth: int = 1  # steps in flight

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", replace(self.cost.without_tiles(), rounding=Rounding()))

    def of(self, features: Features) -> float:
        """The time of a step with these features."""
        spent = self.cost.predict(features) * _mean(self.cost.residuals[self.cost.regime(features)])
        behind = self.cost.behind(features)
        if self.depth == 1:
            return spent + behind
        host = self.cost.on_host(features)
        return max(spent - host, float(host + behind))

    def decoding(self, rows: float, context: float, more: Features = NONE) -> float:
        """The time of a decode step, linear between two whole numbers of rows.

        context: tokens that each row attends to. more: features to add to the step.
        """
        below, each = floor(rows), row_features(round(context) - 1, 1, logits=1)
        low = self.of(_times(each, below) + more)
        if rows == below:
            return low
        high = self.of(_times(each, below + 1) + more)
        return low + (high - low) * (rows - below)

    def with_prompt(self, prompt: int, rows: float, context: float) -> float:
        """The time of a decode step with a whole prompt in it."""
        return self.decoding(rows, context, row_features(0, prompt, logits=1))

    def with_prompts(self, prompts: Sequence[int], rows: float, context: float) -> list[float]:
        """The time of such a step for each of the prompts, many of which may be equally long."""
        times = {prompt: self.with_prompt(prompt, rows, context) for prompt in set(prompts)}
        return [times[prompt] for prompt in prompts]

    def waking(self, rate: float) -> float:
        """The mean extra time of the first step after a sleep that an arrival ends.

        rate: arrivals per nanosecond, so sleeps are exponential. A sleep shorter than `cooling`
        costs its share of `wake`.
        """
        long = rate * self.cost.cooling
        return self.cost.wake * (-expm1(-long) / long if long else 1.0)

    def unseen(self, prompt: int) -> float:
        """The host's time after a prompt's step, which the first token does not wait for."""
        if self.depth > 1:
            return 0.0
        return float(self.cost.behind(row_features(0, prompt, logits=1)))

    def group(self, prompt: int, size: float) -> float:
        """The time of a step of `size` whole prompts alone, linear between two whole numbers."""
        below, each = floor(size), row_features(0, prompt, logits=1)
        low = self.of(_times(each, below))
        if size == below:
            return low
        return low + (self.of(_times(each, below + 1)) - low) * (size - below)


def _mean(residuals: Residuals) -> float:
    """The mean factor when draws interpolate linearly between the quantiles."""
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
