"""The interval of a share of requests.

Blocks of time are redrawn (block_bootstrap). If all requests are good, or none is, all draws are
alike and say nothing. Then the interval is the exact one for independent requests (Clopper and
Pearson, Biometrika, 1934): with n of n good, its lower end is the share that gives n of n in
(1 - covered) / 2 of the cases. Requests that share steps are not independent, so this interval is a
little too narrow.
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
    """The interval of the share of ones among zeros and ones. window: begin and end of the blocks,
    in nanoseconds. Empty if there are too few values, or if they lie in too few blocks."""
    if not is_spread(good, window):
        return NO_INTERVAL
    return exact_interval(good, covered) or mean_interval(good, window, covered)


def exact_interval(good: Sequence[Timed], covered: float) -> Interval | None:
    """The exact interval if there are enough values and all are equal; else None."""
    if len(good) < 2 * MIN_BEYOND or len({value for _, value in good}) > 1:
        return None
    edge = float(((1 - covered) / 2) ** (1 / len(good)))
    return Interval(edge, 1.0) if good[0][1] else Interval(0.0, 1 - edge)
