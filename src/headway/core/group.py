"""The exclusive group that runs: its rectangle, and the answers that wait for its end."""

from bisect import bisect_left
from dataclasses import dataclass, field

from headway.core.batch import Event
from headway.core.request import Finish
from headway.core.sequence import Sequence


@dataclass(eq=False, slots=True)
class Group:
    """What Static or Dynamic started together; a group of no slots is none."""

    slots: int = 0  # places, each really computed until the last member ends
    buckets: tuple[int, ...] = ()  # padded widths, ascending; none: to the longest
    together: bool = False  # callers are answered when it ends, as plain generate does
    done: dict[int, tuple[Sequence, Finish]] = field(default_factory=dict)  # members, by number
    unsaid: list[Event] = field(default_factory=list)  # that wait for its end

    def rectangle(self, running: int, longest: int) -> tuple[int, int]:
        """Held slots and padded width of a step whose longest row has so many tokens."""
        if not self.slots:
            return 0, 0
        if longest > 1 and self.buckets and longest <= self.buckets[-1]:
            longest = self.buckets[bisect_left(self.buckets, longest)]
        return self.slots - running, longest

    def withdraw(self, sequence: Sequence) -> None:
        """A member is ended from outside before anybody heard of it."""
        self.done.pop(sequence.number, None)
        self.unsaid = [event for event in self.unsaid if event.id != sequence.request.id]
