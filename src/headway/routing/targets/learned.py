"""Learned: predicts what a target's next answer takes from what its recent answers took."""

from headway.core.cost.call_cost import CallCost
from headway.core.request import NEVER
from headway.routing.attempts import loop_now
from headway.routing.targets.target import UNKNOWN, Estimate

MEMORY = 32  # answers after which an old size has mostly faded from the mean
# Nanoseconds after which what was learned is old. Routes probe a target after twice as long, so
# that the probe's answer finds it old.
OLD = 5_000_000_000


class Learned:
    """Three lines over the size of recent answers: time, device time and cost.

    They are fitted as those that size the calls of functions (core.cost.call_cost). The target
    decides what a size is: generated tokens, or the cost of an item.

    An answer that comes after a pause and is clearly faster than predicted begins them anew. Among
    all those before it, it would hardly count, and nobody asks a target that is predicted late.
    """

    def __init__(self) -> None:
        self._begin()
        self._seen, self._size = 0, 0.0
        self._last = NEVER  # when the latest answer came

    def _begin(self) -> None:
        self._span, self._device, self._cost = CallCost(), CallCost(), CallCost()

    @property
    def size(self) -> int:
        """The mean size of the recent answers; 0: none yet."""
        return round(self._size)

    def see(self, size: int, span: int, nanoseconds: int, cost: int) -> None:
        """Learn from an answer. span: nanoseconds from its start. nanoseconds: device time. Call it
        in the event loop."""
        size, now = max(1, size), loop_now()
        if now - self._last >= OLD and span < _on(self._span, size) - self._span.deviation:
            self._begin()
        self._last = now
        self._seen += 1
        self._size += (size - self._size) / min(MEMORY, self._seen)
        self._span.see(size, span)
        self._device.see(size, nanoseconds)
        self._cost.see(size, cost)

    def estimate(self, size: int, wait: int) -> Estimate:
        """The estimate for an answer of this size that waits `wait` nanoseconds before it starts.
        UNKNOWN before the first answer."""
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
