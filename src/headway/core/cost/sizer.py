"""How long a step takes, while its rows are still being chosen (Sizer)."""

from collections.abc import Sequence
from math import inf

from headway.core.cost.estimates import Estimates
from headway.core.cost.features import Features
from headway.core.cost.step_cost import WHOLE
from headway.core.request import NEVER
from headway.core.sequences.sequence import TIMED


class Sizer:
    """Prices a step as rows are added: one by one, or many decodes at once. Times are nanoseconds,
    corrected by the drift, at a quantile of the residuals: `sure` of the steps take no longer."""

    def __init__(
        self,
        estimates: Estimates,
        nanoseconds: int,
        sure: float,
        filler: float = inf,
        *,
        behind: bool = False,
    ) -> None:
        """nanoseconds: what the step may take. filler: the share by which rows of later tiers may
        lengthen a step that has a prompt of tier TIMED. behind: another step is being computed."""
        self.estimates, self.nanoseconds = estimates, nanoseconds
        self._predict = estimates.behind_another if behind else estimates.predict
        self._most, self._filler = nanoseconds, filler
        self._filled = NEVER  # what it may take with rows of later tiers; NEVER: no such limit
        self._has_timed_prompt, self._tier = False, TIMED
        self._residuals = [each.at(sure) for each in estimates.cost.residuals]
        self._tokens = self._rows = self._prompts = self._pairs = self._logits = 0
        self._reads = 0  # keys that prompts read
        self._singles: list[int] = []  # keys that each row of one token reads
        self._padded = 0  # keys that these rows read together, padding included

    def decode(self, starts: Sequence[int]) -> None:
        """Add rows of one token, at these positions."""
        keys = [start + 1 for start in starts]
        self._singles += keys
        self._tokens += len(keys)
        self._rows += len(keys)
        self._logits += len(keys)
        gathering = self.estimates.cost.gathering
        self._padded = (
            gathering.reads(self._singles) if gathering.at_once else self._padded + sum(keys)
        )

    def turn_to(self, tier: int) -> None:
        """Go on with rows of this tier (Sequence.tier), and set the time they may fill."""
        self._tier = tier
        if tier != TIMED and self._has_timed_prompt and self._filled == NEVER:
            self._filled = int(min(self._most, self.price() * (1 + self._filler)))
        self.nanoseconds = self._most if tier == TIMED else min(self._most, self._filled)

    def fit_singles(self, starts: Sequence[int], latest: int) -> bool:
        """Add rows of one token at these positions if all of them fit. Returns whether they do.
        latest: the last of their tiers."""
        self.turn_to(latest)
        before = self._tokens, self._rows, self._logits, self._padded, len(self._singles)
        self.decode(starts)
        if self.price() <= self.nanoseconds:
            return True
        *counts, singles = before
        self._tokens, self._rows, self._logits, self._padded = counts
        del self._singles[singles:]
        return False

    def add(self, start: int, length: int, *, each: bool = False) -> None:
        """Add a row of `length` tokens from position `start` on. It has logits at its end, and with
        `each` one more for every position."""
        self._has_timed_prompt |= self._tier == TIMED and length > 1
        self._tokens += length
        self._rows += 1
        self._logits += 1 + length * each
        if length == 1:
            self._padded = self._reads_with(start + 1)
            self._singles.append(start + 1)
        else:
            self._prompts += 1
            self._reads += start + length
            self._pairs += length * start + length * (length + 1) // 2

    def keep(self, start: int, length: int, tier: int, *, each: bool = False) -> None:
        """Add a row of this tier that the step has anyway. The tier and the time limit of the rows
        that follow stay as they are."""
        turned, self._tier = self._tier, tier
        self.add(start, length, each=each)
        self._tier = turned

    def drop(self, start: int, length: int, *, each: bool = False) -> None:
        """Remove a row that was added."""
        self._tokens -= length
        self._rows -= 1
        self._logits -= 1 + length * each
        if length == 1:
            self._singles.remove(start + 1)
            self._padded = self.estimates.cost.gathering.reads(self._singles)
        else:
            self._prompts -= 1
            self._reads -= start + length
            self._pairs -= length * start + length * (length + 1) // 2

    def price(self, start: int = 0, length: int = 0, *, each: bool = False) -> int:
        """Nanoseconds of the step with one more row of `length` tokens; 0: as it is."""
        features = self._features(start, length, 1 + length * each)
        sure = self._residuals[self.estimates.cost.regime(features)]
        return self._predict(features) * sure // WHOLE

    def _features(self, start: int, length: int, logits: int) -> Features:
        end, padded, reads, pairs = start + length, self._padded, self._reads, self._pairs
        if length > 1:
            reads += end
            pairs += length * start + length * (length + 1) // 2
        elif length:
            padded = self._reads_with(end)
        return Features(
            self._tokens + length,
            self._rows + int(length > 0),
            self._prompts + int(length > 1),
            reads + padded,
            pairs + padded,
            self._logits + (logits if length else 0),
            int(bool(self._singles) or length == 1),
        )

    def _reads_with(self, keys: int) -> int:
        """Keys read by the rows of one token, with one more row that reads `keys` keys."""
        gathering = self.estimates.cost.gathering
        if not gathering.at_once:
            return self._padded + keys
        return gathering.reads([*self._singles, keys])

    def fit(self, start: int, wanted: int, *, each: bool = False) -> int:
        """How many of the `wanted` tokens, from position `start` on, the step can take in its time.

        More tokens cost more, except from one token to two and at the knee, where another residual
        holds. So the stretches between these are searched one by one, the largest first.
        """
        if wanted == 1:
            return int(self._over(start, 1, each) <= 0)
        knee = self.estimates.cost.knee - self._tokens
        begins = {n for n in (1, 2, knee + 1) if 0 < n <= wanted}
        most = wanted
        for least in sorted(begins, reverse=True):
            if (over := self._over(start, most, each)) <= 0:
                return most
            if (spare := -self._over(start, least, each)) >= 0:
                return self._largest(start, each, (least, spare), (most, over))
            most = least - 1
        return 0

    def _largest(
        self, start: int, each: bool, least: tuple[int, int], most: tuple[int, int]
    ) -> int:
        """The largest number of tokens that fits. least: a number that fits, and the nanoseconds it
        leaves. most: one that does not, and the nanoseconds it lacks. Prices nearly lie on a line,
        so the search interpolates, and halves every other time in case they do not."""
        (low, spare), (high, over), halves = least, most, False
        while high - low > 1:
            ahead = (high - low) // 2 if halves else (high - low) * spare // (spare + over)
            middle = min(high - 1, low + max(1, ahead))
            if (more := self._over(start, middle, each)) <= 0:
                low, spare = middle, -more
            else:
                high, over = middle, more
            halves = not halves
        return low

    def _over(self, start: int, length: int, each: bool) -> int:
        """Nanoseconds by which the step would be too long; 0 or less: it fits."""
        return self.price(start, length, each=each) - self.nanoseconds
