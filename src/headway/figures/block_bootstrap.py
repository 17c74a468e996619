"""How sure a mean or a percentile is (Interval).

Requests that share a server's steps are not independent, so the bootstrap redraws blocks of time
and not requests (block bootstrap: Kuensch, Annals of Statistics, 1989), as capacity_interval does.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from headway.figures.capacity_interval import BLOCKS, COVERED, DRAWS
from headway.figures.percentile import MIN_BEYOND

CELLS = 500  # that many values are sorted into, at most; with fewer values each is a cell

Timed = tuple[int, int]  # when a request arrived, and its value


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the share `covered` of the draws of a figure lies, 90 % unless it is given. Empty where
    there were too few values."""

    low: float
    high: float
    is_empty: bool = False

    def times(self, factor: float) -> "Interval":
        return Interval(self.low * factor, self.high * factor, self.is_empty)


NO_INTERVAL = Interval(0.0, 0.0, is_empty=True)


def mean_interval(
    values: Sequence[Timed], window: tuple[int, int], covered: float = COVERED
) -> Interval:
    """Of a mean. window: the nanoseconds that are divided into blocks."""
    sums, counts = [0] * BLOCKS, [0] * BLOCKS
    for at, value in values:
        block = _block(at, window)
        sums[block] += value
        counts[block] += 1
    found = [
        sum(sums[block] for block in drawn) / count
        for drawn in _draws()
        if (count := sum(counts[block] for block in drawn))
    ]
    return _middle(found, covered) if len(values) >= 2 * MIN_BEYOND else NO_INTERVAL


def percentile_intervals(
    values: Sequence[Timed], window: tuple[int, int], percents: Sequence[float]
) -> tuple[Interval, ...]:
    """Of percentiles, nearest rank. Empty where there are too few values for the percentile."""
    ordered = sorted(value for _, value in values)
    size = -(-len(ordered) // CELLS) or 1
    tops = [ordered[min(at + size, len(ordered)) - 1] for at in range(0, len(ordered), size)]
    tops = sorted(set(tops))
    counts = [[0] * len(tops) for _ in range(BLOCKS)]
    for at, value in values:
        counts[_block(at, window)][bisect_left(tops, value)] += 1
    found: list[list[float]] = [[] for _ in percents]
    for drawn in _draws() if tops else ():
        sums = list(accumulate(map(sum, zip(*[counts[block] for block in drawn], strict=True))))
        for mine, percent in zip(found, percents, strict=True):
            if sums[-1]:
                mine.append(tops[bisect_left(sums, sums[-1] * percent / 100)])
    return tuple(
        _middle(mine) if len(values) * (100 - percent) >= 100 * MIN_BEYOND else NO_INTERVAL
        for mine, percent in zip(found, percents, strict=True)
    )


def _block(at: int, window: tuple[int, int]) -> int:
    begin, end = window
    return min(max(0, (at - begin) * BLOCKS // max(1, end - begin)), BLOCKS - 1)


def _draws() -> Iterator[list[int]]:
    """The same ones for every figure, so that two servers are compared on the same blocks."""
    random = Random("blocks of time")
    for _ in range(DRAWS):
        yield random.choices(range(BLOCKS), k=BLOCKS)


def _middle(found: list[float], covered: float = COVERED) -> Interval:
    if not found:
        return NO_INTERVAL
    found.sort()
    left = round(len(found) * (1 - covered) / 2)
    return Interval(found[left], found[-1 - left])
