"""The knee: the rate at which the latency has doubled."""

from collections.abc import Iterable
from itertools import pairwise
from math import log

from headway.figures.percentile import Quantile

TIMES = 2  # times the latency at the lowest rate
RULE = (
    "The knee is the rate at which the endpoint's TTFT p95 has doubled over what it is at the "
    "lowest rate with enough samples, log-interpolated between two rates of the sweep."
)


def find_knee(curve: Iterable[tuple[float, Quantile]]) -> float | None:
    """Find the rate of the knee; None if the latency never doubles, or if requests are too few.

    curve: ascending rates, each with its percentile.

    A percentile that was not reached within the run counts as very large. The knee then lies close
    to the rate before it.
    """
    known = [(rate, value) for rate, value in curve if value is not None]
    if not known:
        return None
    limit = TIMES * known[0][1]
    for (before, low), (rate, high) in pairwise(known):
        if high >= limit > low > 0:
            return before + (rate - before) * log(limit / low) / log(high / low)
    return None
