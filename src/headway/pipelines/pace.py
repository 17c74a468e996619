"""What a stage takes at present (Pace): learned from its calls, and from who is in it."""

from collections.abc import Iterable
from math import ceil

from headway.core.cost.call_cost import CallCost
from headway.core.ledger import RequestRow, StepRow
from headway.pipelines.split import Need

MEMORY = 32  # calls, or workflows, until a mean has mostly forgotten its past


class Pace:
    """Of one stage. It is told by the pipeline what enters and what ends, and reads no clock."""

    def __init__(self, size: int, max_waiting: int, calls: bool = True) -> None:
        """size: items of a call, at most. calls: else items come and go by themselves (an LLM)."""
        self.size, self.max_waiting = size, max_waiting
        self.cost = CallCost()
        self.inside = 0  # items that have entered and not ended
        self.coming = 0  # workflows that were let in and have not been here yet
        self.width = 1.0  # items of a workflow here, on average
        self.level = 0.0  # items that are here when one enters, on average
        self.cells = 1.0  # of an item, on average
        self.items = 1.0  # of a call, on average
        self._calls = calls
        self._last = 0  # number of the latest call that was seen

    def enter(self, items: int) -> None:
        """So many items of a workflow enter together."""
        self.inside += items
        self.level += (self.inside - self.level) / MEMORY
        self.width += (items - self.width) / MEMORY

    def leave(self, row: RequestRow | None, step: StepRow | None) -> None:
        """An item has ended. row: the ledger's; step: the call in which it did."""
        self.inside -= 1
        if not self._calls:
            if row is not None and row.is_whole:
                self.cost.see(1, row.finished - row.first_scheduled)
        elif step is not None and step.step > self._last:
            self._last = step.step
            self.cost.see(step.tokens + step.waste_tokens, step.nanoseconds)
            self.cells += (step.tokens / step.rows - self.cells) / MEMORY
            self.items += (step.rows - self.items) / MEMORY

    @property
    def need(self) -> Need:
        """What an item that entered now is expected to take: a call as full as they are of late,
        after those of whoever is here of late. Both are means, because a stage further on is
        reached later, when whoever is there now has gone."""
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
        """Items that are here or will be, of the workflows that were let in."""
        return self.inside + self.coming * self.width

    @property
    def is_full(self) -> bool:
        """Whether another workflow would find no place in the line."""
        return self.expected > 0 and self.expected + self.width > self.max_waiting

    def drained(self, drain: float) -> float:
        """Seconds until those who are here or will be have begun. drain: of the line, prompt tokens
        that start per second; 0: not known."""
        if drain:
            return self.expected * self.cells / drain
        base, rate = self.cost.line
        return (base / self.size + rate * self.cells) * self.expected / 1e9


def needs(paces: Iterable[Pace]) -> list[Need]:
    """Of all stages."""
    return [pace.need for pace in paces]
