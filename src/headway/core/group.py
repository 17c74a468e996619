"""The exclusive group that runs (Group): its rectangle, and the events withheld until its end."""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from headway.core.batch import Event


@dataclass(eq=False, slots=True)
class Group:
    """What Static or Dynamic started together. Without slots: there is no group."""

    slots: int = 0  # each is really computed until the last member ends
    buckets: tuple[int, ...] = ()  # widths to pad to, ascending; none: to the longest row
    together: bool = False  # callers are answered when the group ends, as plain generate does
    least: int = 2  # tokens of a row that is padded to a bucket: a single one is a next token
    withheld: list[Event] = field(default_factory=list)  # until then

    def rectangle(self, running: int, longest: int) -> tuple[int, int]:
        """Held slots and padded width of a step. longest: tokens of its longest row."""
        if not self.slots:
            return 0, 0
        if longest >= self.least and self.buckets and longest <= self.buckets[-1]:
            longest = self.buckets[bisect_left(self.buckets, longest)]
        return self.slots - running, longest

    def is_over(self, running: Collection[object]) -> bool:
        """Whether it has ended, and its events are still withheld."""
        return bool(self.withheld) and not running

    def forget(self, id: str) -> None:
        """This member was ended from outside: what was withheld of it is never said."""
        self.withheld = [event for event in self.withheld if event.id != id]
