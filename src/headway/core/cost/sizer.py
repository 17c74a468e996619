"""What a step would take that is still being chosen (Sizer)."""

from collections.abc import Iterable

from headway.core.cost.estimates import Estimates
from headway.core.cost.features import Features
from headway.core.cost.step_cost import WHOLE


class Sizer:
    """Rows are added one by one, or many that decode at once. Times are in nanoseconds, with the
    drift, and include a quantile of the residuals: `sure` of the steps take no longer."""

    def __init__(self, estimates: Estimates, nanoseconds: int, sure: float) -> None:
        """nanoseconds: that the step may take."""
        self.estimates, self.nanoseconds = estimates, nanoseconds
        self._residuals = [each.at(sure) for each in estimates.cost.residuals]
        self._tokens = self._rows = self._prompts = self._pairs = self._logits = 0
        self._reads = 0  # keys that prompts read
        self._singles = list[int]()  # keys that each of the others reads
        self._padded = 0  # keys that they read together, padding included
        self._stale = False  # that is to be counted again

    def decode(self, starts: Iterable[int]) -> None:
        """Add rows of one token, at these positions."""
        keys = [start + 1 for start in starts]
        self._singles += keys
        self._tokens += len(keys)
        self._rows += len(keys)
        self._logits += len(keys)
        self._stale = True

    def add(self, start: int, length: int) -> None:
        """Add a row of so many tokens, at least two, from this position on."""
        self._tokens += length
        self._rows += 1
        self._prompts += 1
        self._reads += start + length
        self._pairs += length * start + length * (length + 1) // 2
        self._logits += 1

    def price(self, start: int = 0, length: int = 0) -> int:
        """Nanoseconds of the step with one more row of so many tokens."""
        if self._stale:
            self._padded = self.estimates.cost.gathering.reads(self._singles)
            self._stale = False
        end, some = start + length, int(length > 0)
        features = Features(
            self._tokens + length,
            self._rows + some,
            self._prompts + int(length > 1),
            self._reads + self._padded + (end if some else 0),
            self._pairs + self._padded + length * start + length * (length + 1) // 2,
            self._logits + some,
            int(bool(self._singles) or length == 1),
        )
        sure = self._residuals[self.estimates.cost.regime(features)]
        return self.estimates.predict(features) * sure // WHOLE

    def fit(self, start: int, wanted: int) -> int:
        """How many of these tokens, from this position on, the step can take in its time."""
        if self.price(start, wanted) <= self.nanoseconds:
            return wanted
        least, most = 0, wanted  # `least` fit, if any do; `most` do not
        while most - least > 1:
            middle = (least + most) // 2
            if self.price(start, middle) <= self.nanoseconds:
                least = middle
            else:
                most = middle
        return least
