"""Percentiles: nearest rank on the raw values, or none where there are too few."""

from collections.abc import Iterable

MIN_BEYOND = 5  # values beyond a percentile; with fewer there are too few requests (p95: 100)

# Nanoseconds; NEVER: not reached within the run; None: too few values.
Quantile = int | None


def percentile(values: Iterable[int], percent: float) -> Quantile:
    """Nearest rank on the raw values: the least value that `percent` % do not exceed.

    percent: to a tenth.
    """
    ordered, tenths = sorted(values), round(10 * percent)
    if len(ordered) * (1_000 - tenths) < MIN_BEYOND * 1_000:
        return None
    return ordered[-(-len(ordered) * tenths // 1_000) - 1]
