"""Where latency begins to run away: the rate at which it has doubled."""

from collections.abc import Iterable
from itertools import pairwise
from math import log

from headway.figures.lane_figures import Quantile

TIMES = 2  # of what it is at the lowest rate
RULE = (
    "The knee is the rate at which the endpoint's TTFT p95 has doubled over what it is at the "
    "lowest rate where it can be said: between two rates of the sweep, on the line that is drawn "
    "through its logarithm."
)


def find_knee(curve: Iterable[tuple[float, Quantile]]) -> float | None:
    """curve: rates, ascending, and the percentile at each. None: it never doubles, or is not said.

    A percentile that did not come within the run lies far above any line, so the knee is then
    close to the rate before it.
    """
    said = [(rate, value) for rate, value in curve if value is not None]
    if not said:
        return None
    limit = TIMES * said[0][1]
    for (before, low), (rate, high) in pairwise(said):
        if high >= limit > low > 0:
            return before + (rate - before) * log(limit / low) / log(high / low)
    return None
