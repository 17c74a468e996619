"""The exclusive group that runs (Group): its rectangle, and the events withheld until its end."""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from headway.core.batch import Event


@dataclass(eq=False, slots=True)
class Group:
    """The requests that Static or Dynamic started together. 0 slots: there is no group."""

    slots: int = 0  # each is really computed until the last member ends
    buckets: tuple[int, ...] = ()  # widths to pad to, ascending; none: to the longest row
    together: bool = False  # callers are answered when the group ends, as plain generate does
    least: int = 2  # buckets apply if the longest row has this many tokens; 2 exempts decodes
    withheld: list[Event] = field(default_factory=list)  # until the group ends, if `together`

    def rectangle(self, running: int, longest: int) -> tuple[int, int]:
        """Held slots and padded width of a step. longest: tokens of its longest row."""
        if not self.slots:
            return 0, 0
        if longest >= self.least and self.buckets and longest <= self.buckets[-1]:
            longest = self.buckets[bisect_left(self.buckets, longest)]
        return self.slots - running, longest

    def is_over(self, running: Collection[object]) -> bool:
        """Whether the group has ended and its events are still withheld."""
        return bool(self.withheld) and not running

    def forget(self, id: str) -> None:
        """Drop the withheld events of a member that was ended from outside."""
        self.withheld = [event for event in self.withheld if event.id != id]
