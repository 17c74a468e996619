"""How often a value was how large. Counted in integers, so that sums are exact."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple


class Scale(NamedTuple):
    """Upper bounds of buckets, ascending, and how many of their unit Prometheus counts as one."""

    bounds: tuple[int, ...]
    unit: int = 1


# Fine around a budget of 20 ms a token; the limits of the lanes that ship are among them.
MICROSECONDS = (
    *(1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 12_500, 15_000, 17_500, 20_000, 25_000, 30_000),
    *(40_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000, 500_000, 750_000, 1_000_000),
    *(1_500_000, 2_000_000, 3_000_000, 5_000_000, 10_000_000, 20_000_000, 30_000_000, 60_000_000),
    *(120_000_000, 300_000_000),
)
TIMES = Scale(tuple([1_000 * each for each in MICROSECONDS]), 1_000_000_000)
TOKENS = Scale(tuple([2**power for power in range(15)]))  # to 16,384
SEQUENCES = Scale((1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1_024))


class Histogram:
    """prometheus_client's own takes a value at a time, 2 microseconds for each; here one add is
    good for a step's whole batch, and takes 0.3."""

    __slots__ = ("counts", "scale", "sum")

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.counts = [0] * (len(scale.bounds) + 1)  # the last: above all bounds
        self.sum = 0

    def add(self, value: int, times: int = 1) -> None:
        """Count a value so many times. The value is in the scale's own whole unit."""
        self.counts[bisect_left(self.scale.bounds, value)] += times
        self.sum += value * times

    @property
    def unit(self) -> int:
        return self.scale.unit

    @property
    def buckets(self) -> list[tuple[str, int]]:
        """As Prometheus has them: how many were at most so large."""
        names = [str(bound / self.unit) for bound in self.scale.bounds]
        return list(zip([*names, "+Inf"], accumulate(self.counts), strict=True))


def together(scale: Scale, several: Iterable[Histogram]) -> Histogram:
    """All that these have counted."""
    whole = Histogram(scale)
    for each in several:
        whole.counts = [a + b for a, b in zip(whole.counts, each.counts, strict=True)]
        whole.sum += each.sum
    return whole
