"""TimeCounts: how often each time occurred, to within 3 %, in little memory."""

from collections import Counter
from collections.abc import Iterable

from headway.figures.percentile import MIN_BEYOND, Quantile

BITS = 5  # bits of a value kept below its highest bit: 32 buckets for each doubling


class TimeCounts(Counter[int]):
    """Counts by bucket, as in an HDR histogram (Gil Tene): a bucket's width is at most 1/32 of its
    lower bound. From a microsecond to a century there are about 1,650 buckets.

    /metrics has few, fixed buckets, because Prometheus keeps a series for each. Percentiles of
    those are wrong by up to half.
    """

    def see(self, value: int) -> None:
        """Count a time in nanoseconds, 0 or more."""
        drop = max(0, value.bit_length() - BITS - 1)
        self[value >> drop << drop] += 1

    def add(self, others: "TimeCounts") -> None:
        """Count these times too. Counter.update does the same with more checks first."""
        known = self.get
        for value, count in others.items():
            self[value] = known(value, 0) + count

    def take_off(self, others: "TimeCounts") -> None:
        """Forget these times, which were counted."""
        for value, count in others.items():
            if left := self[value] - count:
                self[value] = left
            else:
                del self[value]

    def percentile(self, percent: float) -> Quantile:
        """The percentile by nearest rank, as the middle of its bucket; None if there are too few
        values, as in figures."""
        count, tenths = self.total(), round(10 * percent)
        if count * (1_000 - tenths) < MIN_BEYOND * 1_000:
            return None
        rank = -(-count * tenths // 1_000)
        for low in sorted(self):
            rank -= self[low]
            if rank <= 0:
                return low + (low >> BITS + 1)
        raise AssertionError("a rank is at most the count")


def merged(counts: Iterable[TimeCounts]) -> TimeCounts:
    """The sum of all these counts."""
    total = TimeCounts()
    for each in counts:
        total.add(each)
    return total
