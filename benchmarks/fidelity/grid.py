"""A capacity from several runs at each of a few rates: where the joint attainment crosses.

A bisection asks each rate once, and a slow half minute sends it to the wrong side for good.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import mean

from scipy.optimize import isotonic_regression

from headway.figures.capacity import REQUIRED_ATTAINMENT

STEP = 1.1  # from one rate to the next
AROUND = 2  # rates on either side of the guess, to begin with
FURTHEST = 12  # from it

Serve = Callable[[float, int], Mapping[str, float]]  # rate, turn: attainment by lane
Kept = Sequence[Mapping[str, float]]  # by turn


@dataclass(slots=True)
class Grid:
    """Rates in even steps around a guess, asked in turns until what is sought lies between two."""

    serve: Serve
    guess: float
    turns: int
    asked: dict[int, Kept] = field(default_factory=dict)  # by steps away from the guess

    def search(self) -> None:
        """Each turn asks all rates, upwards and then downwards. Then further rates are asked, where
        the crossing of all turns or of either half of them lies beyond."""
        around = range(-AROUND, AROUND + 1)
        found: dict[int, list[Mapping[str, float]]] = {place: [] for place in around}
        for turn in range(self.turns):
            for place in reversed(around) if turn % 2 else around:
                found[place].append(self.serve(self.rate(place), turn))
        self.asked.update(found)
        while (further := self._beyond()) is not None:
            rate = self.rate(further)
            self.asked[further] = [self.serve(rate, turn) for turn in range(self.turns)]

    def rate(self, place: int) -> float:
        return self.guess * STEP**place

    def crossing(self, turns: slice = slice(None)) -> float:
        """The rate up to which every lane keeps REQUIRED_ATTAINMENT, on the line between two rates.
        If the lowest rate does not keep it, or the highest still does, that rate."""
        places = sorted(self.asked)
        # Attainment falls with the rate: rates where it seems to rise are pooled.
        falls = isotonic_regression([self._least(each, turns) for each in places], increasing=False)
        kept = dict(zip(places, falls.x.tolist(), strict=True))
        top = max(
            (place for place in places if kept[place] >= REQUIRED_ATTAINMENT), default=places[0]
        )
        if kept[top] < REQUIRED_ATTAINMENT or top == places[-1]:
            return self.rate(top)
        share = (kept[top] - REQUIRED_ATTAINMENT) / (kept[top] - kept[top + 1])
        return exp(log(self.rate(top)) + share * log(STEP))

    @property
    def halves(self) -> tuple[float, float]:
        """Of the even turns, and of the odd ones."""
        return self.crossing(slice(0, None, 2)), self.crossing(slice(1, None, 2))

    def _least(self, place: int, turns: slice) -> float:
        kept = self.asked[place][turns]
        return min(mean(each[lane] for each in kept) for lane in kept[0])

    def _beyond(self) -> int | None:
        """The next rate to ask."""
        halves = [slice(None), slice(0, None, 2), slice(1, None, 2)]
        low, high = min(self.asked), max(self.asked)
        if low > -FURTHEST and any(self._least(low, each) < REQUIRED_ATTAINMENT for each in halves):
            return low - 1
        if high < FURTHEST and any(
            self._least(high, each) >= REQUIRED_ATTAINMENT for each in halves
        ):
            return high + 1
        return None
