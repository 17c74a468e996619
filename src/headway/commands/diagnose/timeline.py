"""Sums over time: how much of something lay between two moments (Timeline)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Protocol

from headway.core.ledger import StepRow


class Timeline:
    """Amounts, each spread evenly over a time span. The spans are in order and do not overlap.

    span     |----- 30 -----|        |- 10 -|
    between          |------------------|        15 + 5
    """

    def __init__(self, spans: Iterable[tuple[int, int, float]]) -> None:
        """spans: begin, end (nanoseconds) and amount."""
        listed = [each for each in spans if each[1] > each[0]]
        self._begins = [begin for begin, _, _ in listed]
        self._ends = [end for _, end, _ in listed]
        self._amounts = [amount for _, _, amount in listed]
        self._before = [0.0, *accumulate(self._amounts)]

    def between(self, begin: int, end: int) -> float:
        """The amount between two times, at least 0; 0 if `end` is not later than `begin`."""
        return max(0.0, self._until(end) - self._until(begin)) if end > begin else 0.0

    def signed(self, begin: int, end: int) -> float:
        """The amount between two times, which may be negative; 0 as in `between`."""
        return self._until(end) - self._until(begin) if end > begin else 0.0

    def _until(self, time: int) -> float:
        at = bisect_left(self._ends, time)  # spans that ended before
        if at == len(self._ends) or self._begins[at] >= time:
            return self._before[at]
        begin, end = self._begins[at], self._ends[at]
        return self._before[at] + self._amounts[at] * (time - begin) / (end - begin)


def of_steps(steps: Sequence[StepRow], amounts: Iterable[float]) -> Timeline:
    """A timeline with one amount per step, spread over the step's own time."""
    return Timeline(
        (row.began, row.began + row.nanoseconds, amount)
        for row, amount in zip(steps, amounts, strict=True)
    )


class Line(Protocol):
    """The times at which no request waited: earlier delays were over by then."""

    def before(self, time: int, otherwise: int) -> int:
        """The latest such time up to `time`; `otherwise` if none is known."""
        ...


class WaitingLine:
    """A Line made from the waits of requests: begin and end of each."""

    def __init__(self, waits: Iterable[tuple[int, int]]) -> None:
        self._begins, self._ends = list[int](), list[int]()  # of spans in which any request waited
        for begin, end in sorted(waits):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def before(self, time: int, otherwise: int) -> int:
        """See Line."""
        at = bisect_right(self._begins, time) - 1
        return self._begins[at] if at >= 0 and time < self._ends[at] else time


class EmptyLine:
    """A Line made from steps: the ends of those after which no request waited."""

    def __init__(self, steps: Sequence[StepRow]) -> None:
        self._ends = [row.began + row.nanoseconds for row in steps if not row.waiting]

    def before(self, time: int, otherwise: int) -> int:
        """See Line."""
        at = bisect_right(self._ends, time)
        return self._ends[at - 1] if at else otherwise
