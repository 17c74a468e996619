"""How sure a share of requests is.

Blocks of time are drawn again (block_bootstrap). Where all requests are good, or none is, all draws
are the same and say nothing. Then the interval is exact for independent requests (Clopper and
Pearson, Biometrika, 1934): with n of n good, its lower end is the share that gives n of n in
(1 - covered) / 2 of the cases. Requests that share steps depend on each other, so it is a little
too narrow.
"""

from collections.abc import Sequence

from headway.figures.capacity_interval import COVERED
from headway.figures.intervals.block_bootstrap import (
    NO_INTERVAL,
    Interval,
    Timed,
    is_spread,
    mean_interval,
)
from headway.figures.percentile import MIN_BEYOND


def share_interval(
    good: Sequence[Timed], window: tuple[int, int], covered: float = COVERED
) -> Interval:
    """Of the share of ones among zeros and ones. window: the nanoseconds of the blocks. Empty where
    there are too few, or where they came in too few blocks."""
    if not is_spread(good, window):
        return NO_INTERVAL
    return exact_interval(good, covered) or mean_interval(good, window, covered)


def exact_interval(good: Sequence[Timed], covered: float) -> Interval | None:
    """Where enough zeros and ones are all alike; None where they are not."""
    if len(good) < 2 * MIN_BEYOND or len({value for _, value in good}) > 1:
        return None
    edge = float(((1 - covered) / 2) ** (1 / len(good)))
    return Interval(edge, 1.0) if good[0][1] else Interval(0.0, 1 - edge)
