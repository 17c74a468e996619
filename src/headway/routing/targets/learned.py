"""Learned: what a target's answers took, and so what the next one will."""

from headway.core.cost.call_cost import CallCost
from headway.routing.targets.target import UNKNOWN, Estimate

MEMORY = 32  # answers after which most of the mean size has faded


class Learned:
    """Lines through the recent answers, over their sizes: time, device time and cost.

    The lines are those that size the calls of functions (core.cost.call_cost). Size is whatever the
    target counts: generated tokens, or the cost of an item.
    """

    def __init__(self) -> None:
        self._span, self._device, self._cost = CallCost(), CallCost(), CallCost()
        self._seen, self._size = 0, 0.0

    @property
    def size(self) -> int:
        """Mean size of the recent answers; 0: none has come yet."""
        return round(self._size)

    def see(self, size: int, span: int, nanoseconds: int, cost: int) -> None:
        """An answer of this size took so long, from its start, and so much device time."""
        size = max(1, size)
        self._seen += 1
        self._size += (size - self._size) / min(MEMORY, self._seen)
        self._span.see(size, span)
        self._device.see(size, nanoseconds)
        self._cost.see(size, cost)

    def estimate(self, size: int, wait: int) -> Estimate:
        """For an answer of this size that waits so long before it starts."""
        if not self._span.is_known:
            return UNKNOWN
        size = max(1, size)
        return Estimate(
            likely=wait + _on(self._span, size),
            surely=wait + self._span.surely(size),
            nanoseconds=_on(self._device, size),
            cost=_on(self._cost, size),
        )


def _on(line: CallCost, size: int) -> int:
    base, rate = line.line
    return round(base + rate * size)
