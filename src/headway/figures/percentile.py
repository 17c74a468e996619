"""Percentiles: nearest rank on the raw values, or none where there are too few."""

from collections.abc import Iterable

MIN_BEYOND = 5  # values beyond a percentile; with fewer there are too few requests (p95: 100)

# Nanoseconds; NEVER: not reached within the run; None: too few values.
Quantile = int | None


def percentile(values: Iterable[int], percent: int) -> Quantile:
    """Nearest rank on the raw values: the least value that `percent` % do not exceed."""
    ordered = sorted(values)
    if len(ordered) * (100 - percent) < MIN_BEYOND * 100:
        return None
    return ordered[-(-len(ordered) * percent // 100) - 1]
