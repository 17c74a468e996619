"""What a stage takes at present (Pace): learned from its calls and from the items in it."""

from collections.abc import Iterable
from math import ceil

from headway.core.cost.call_cost import CallCost
from headway.core.ledger import RequestRow, StepRow
from headway.pipelines.split import Need

MEMORY = 32  # calls, or workflows, until a mean has mostly forgotten its past


class Pace:
    """The pace of one stage. The pipeline tells it what enters and what ends; it reads no clock."""

    def __init__(self, size: int, max_waiting: int, calls: bool = True) -> None:
        """size: items of a call, at most. calls: False if items come and go alone (an LLM)."""
        self.size, self.max_waiting = size, max_waiting
        self.cost = CallCost()
        self.inside = 0  # items that have entered and not ended
        self.coming = 0  # workflows that were let in and have not reached the stage yet
        self.share = 1.0  # of the workflows that bring items here; the others bring empty lists
        self.width = 1.0  # items that such a workflow brings, on average
        self.level = 0.0  # items in the stage when some enter, on average
        self.cells = 1.0  # cells of an item, on average
        self.items = 1.0  # items of a call, on average
        self._calls = calls
        self._last = 0  # number of the latest call that was seen

    def reached(self, *, brings: bool) -> None:
        """A workflow enters for the first time or, if it brings nothing, passes by."""
        self.share += (brings - self.share) / MEMORY

    def enter(self, items: int) -> None:
        """Note that this many items of a workflow enter together."""
        self.inside += items
        self.level += (self.inside - self.level) / MEMORY
        self.width += (items - self.width) / MEMORY

    def leave(self, row: RequestRow | None, step: StepRow | None) -> None:
        """Note that an item has ended. row: the ledger's. step: the call in which it ended."""
        self.inside -= 1
        if not self._calls:
            if row is not None and row.is_whole:
                self.cost.see(1, row.finished - row.first_scheduled)
        elif step is not None and step.step != self._last:
            self._last = step.step
            self.cost.see(step.tokens + step.waste_tokens, step.nanoseconds)
            self.cells += (step.tokens / step.rows - self.cells) / MEMORY
            self.items += (step.rows - self.items) / MEMORY

    @property
    def need(self) -> Need:
        """What an item that enters now is expected to take: a call as full as recent calls, after
        the calls of as many items as were here recently. Recent means are used, because the items
        that are in a later stage now will have left when the workflow gets there."""
        if not self._calls:
            base, rate = self.cost.line
            queue = (base + rate) * max(0.0, self.level - self.size) / self.size
            return Need(self.cost.surely(1), int(queue), int(base + rate))
        base, rate = self.cost.line
        queue = (base / self.items + rate * self.cells) * self.level
        service = self.cost.surely(round(self.items * self.cells))
        alone = int(ceil(self.width / self.size) * base + rate * self.cells * self.width)
        return Need(service, int(queue), alone, alone)

    @property
    def expected(self) -> float:
        """Items that are here or on their way, of the workflows that were let in."""
        return self.inside + self.coming * self.share * self.width

    @property
    def is_full(self) -> bool:
        """Whether another workflow would find no place in the line."""
        return self.expected > 0 and self.expected + self.share * self.width > self.max_waiting

    def drained(self, drain: float) -> float:
        """Seconds until all expected items have begun. drain: prompt tokens of the line that start
        per second; 0: not known."""
        if drain:
            return self.expected * self.cells / drain
        base, rate = self.cost.line
        return (base / self.size + rate * self.cells) * self.expected / 1e9


def needs(paces: Iterable[Pace]) -> list[Need]:
    """The needs of all stages."""
    return [pace.need for pace in paces]
