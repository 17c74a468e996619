"""Percentiles: nearest rank on the raw values, or none where there are too few."""

from collections.abc import Iterable

MIN_BEYOND = 5  # values that must lie beyond a percentile (p95 therefore needs 100 values)

# Nanoseconds; NEVER: not reached within the run; None: too few values.
Quantile = int | None


def percentile(values: Iterable[int], percent: float) -> Quantile:
    """The nearest-rank percentile: the least value that `percent` % of the values do not exceed.

    percent: to a tenth. None if fewer than MIN_BEYOND values lie beyond it.
    """
    ordered, tenths = sorted(values), round(10 * percent)
    if len(ordered) * (1_000 - tenths) < MIN_BEYOND * 1_000:
        return None
    return ordered[-(-len(ordered) * tenths // 1_000) - 1]
