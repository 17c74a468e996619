"""The interval of a mean or a percentile (Interval).

Requests that share a server's steps are not independent. So the bootstrap redraws blocks of time
instead of requests (block bootstrap: Kuensch, Annals of Statistics, 1989), as capacity_interval
does.

Few blocks spread too little when they are redrawn, and their own spread is known only roughly: the
middle 95 % of the draws hold the true value in 92 to 93 % of cases, the middle 90 % in 87 %. So an
interval takes more of them (expanded percentiles: Hesterberg, The American Statistician, 2015).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import itemgetter
from random import Random

from headway.figures.capacity_interval import BLOCKS, COVERED, DRAWS
from headway.figures.percentile import MIN_BEYOND

FEWEST = 5  # blocks with values; with fewer there is no interval
ONE, OTHER = "blocks of time", "other blocks of time"  # streams of draws
# Middle share of the draws in an interval, by the share of cases in which it is to hold the true
# value. As many blocks as BLOCKS, and as wide as Student's t has it for the mean.
TAKEN = {0.9: 0.924, 0.95: 0.968}
CELLS = 500  # most cells that values are sorted into; with fewer values, each has its own cell

Timed = tuple[int, int]  # when a request arrived, and its value


@dataclass(frozen=True, slots=True)
class Interval:
    """The range that holds a figure's true value in the share `covered` of cases (90 % by default).
    Empty if there were too few values, or if they fell into too few blocks."""

    low: float
    high: float
    is_empty: bool = False

    def times(self, factor: float) -> "Interval":
        return Interval(self.low * factor, self.high * factor, self.is_empty)


NO_INTERVAL = Interval(0.0, 0.0, is_empty=True)


def mean_interval(
    values: Sequence[Timed], window: tuple[int, int], covered: float = COVERED
) -> Interval:
    """The interval of the values' mean. window: begin and end of the blocks, in nanoseconds."""
    if len(values) < 2 * MIN_BEYOND or not is_spread(values, window):
        return NO_INTERVAL
    return middle(drawn_means(values, window), covered)


def is_spread(values: Sequence[Timed], window: tuple[int, int]) -> bool:
    """Whether the values lie in enough blocks. Draws of a single block are all alike, so any figure
    would look certain."""
    return len({_block(at, window) for at, _ in values}) >= FEWEST


def drawn_means(
    values: Sequence[Timed], window: tuple[int, int], stream: str = ONE
) -> list[float | None]:
    """The mean in each draw; None if the drawn blocks have no values."""
    sums, counts = [0] * BLOCKS, [0] * BLOCKS
    for at, value in values:
        block = _block(at, window)
        sums[block] += value
        counts[block] += 1
    return [
        sum(map(sums.__getitem__, drawn)) / count
        if (count := sum(map(counts.__getitem__, drawn)))
        else None
        for drawn in _draws(stream)
    ]


def percentile_intervals(
    values: Sequence[Timed], window: tuple[int, int], percents: Sequence[float]
) -> tuple[Interval, ...]:
    """The interval of each percentile (nearest rank). Empty if there are too few values for the
    percentile, or if they lie in too few blocks."""
    found, spread = drawn_percentiles(values, window, percents), is_spread(values, window)
    return tuple(
        middle(mine) if spread and is_enough(len(values), percent) else NO_INTERVAL
        for mine, percent in zip(found, percents, strict=True)
    )


def is_enough(count: int, percent: float) -> bool:
    """Whether `count` values are enough for this percentile."""
    return count * (100 - percent) >= 100 * MIN_BEYOND


def drawn_percentiles(
    values: Sequence[Timed],
    window: tuple[int, int],
    percents: Sequence[float],
    stream: str = ONE,
) -> list[list[float | None]]:
    """For each percentile, its value in each draw; None if the drawn blocks have no values."""
    if len(values) <= CELLS:
        return _few_percentiles(values, window, percents, stream)
    ordered = sorted(value for _, value in values)
    size = -(-len(ordered) // CELLS) or 1
    tops = [ordered[min(at + size, len(ordered)) - 1] for at in range(0, len(ordered), size)]
    tops = sorted(set(tops))
    counts = [[0] * len(tops) for _ in range(BLOCKS)]
    for at, value in values:
        counts[_block(at, window)][bisect_left(tops, value)] += 1
    found: list[list[float | None]] = [[] for _ in percents]
    sums = [list(accumulate(each)) for each in counts]  # of values up to a cell, by block
    cells = range(len(tops))
    for drawn in _draws(stream) if tops else ():
        those = [sums[block] for block in drawn]

        def values_up_to(cell: int, those: Sequence[Sequence[int]] = those) -> int:
            return sum([each[cell] for each in those])

        count = values_up_to(-1)
        for mine, percent in zip(found, percents, strict=True):
            at = bisect_left(cells, count * percent / 100, key=values_up_to)
            mine.append(tops[at] if count else None)
    return found


def _few_percentiles(
    values: Sequence[Timed], window: tuple[int, int], percents: Sequence[float], stream: str
) -> list[list[float | None]]:
    """The same of few values: each counts as often as its block was drawn. Walking over all of them
    is then faster than looking for the cell of each percentile."""
    ordered = sorted(values, key=itemgetter(1))
    blocks = [_block(at, window) for at, _ in ordered]
    found: list[list[float | None]] = [[] for _ in percents]
    for times in _multiplicities(stream) if ordered else ():
        reached = list(accumulate(map(times.__getitem__, blocks)))
        for mine, percent in zip(found, percents, strict=True):
            at = bisect_left(reached, reached[-1] * percent / 100)
            mine.append(ordered[at][1] if reached[-1] else None)
    return found


def _block(at: int, window: tuple[int, int]) -> int:
    begin, end = window
    return min(max(0, (at - begin) * BLOCKS // max(1, end - begin)), BLOCKS - 1)


@cache
def _draws(stream: str) -> Sequence[Sequence[int]]:
    """The blocks of each draw. A stream draws the same blocks for every figure, so that two servers
    are compared on the same blocks."""
    random = Random(stream)
    return [random.choices(range(BLOCKS), k=BLOCKS) for _ in range(DRAWS)]


@cache
def _multiplicities(stream: str) -> Sequence[Sequence[int]]:
    """How often each draw of a stream has each block."""
    return [[drawn.count(block) for block in range(BLOCKS)] for drawn in _draws(stream)]


def middle(found: Sequence[float | None], covered: float = COVERED) -> Interval:
    """The range of the middle draws. covered: a key of TAKEN."""
    known = sorted(value for value in found if value is not None)
    if not known:
        return NO_INTERVAL
    left = round(len(known) * (1 - TAKEN[covered]) / 2)
    return Interval(known[left], known[-1 - left])
