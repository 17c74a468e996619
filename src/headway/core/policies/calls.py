"""Which items are the next call of a function? (Calls)"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headway.core.cost.call_cost import CallCost
from headway.core.policies.join import NOBODY, Start
from headway.core.request import NEVER
from headway.core.sequence import Sequence
from headway.core.view import View
from headway.errors import SettingError

UNKNOWN = CallCost()


@dataclass(frozen=True, slots=True)
class Calls:
    """Start up to `size` items together when nothing runs, whoever must end first before others.

    A call starts once `size` items wait, once somebody has waited its window, or when the first
    deadline leaves no more time than the call takes (CallCost). With a window of 0 it starts at
    once, so that calls grow with the load by themselves.

    The call is cut where it would make its first item late. If more than a call waits, items that
    a whole call would make late come last instead: small calls would make all later ones late
    (the early drop of Nexus, SOSP 2019; here they are served when there is time).

    With `bounds` a call has items of one class of length, padded to its bound.
    """

    steady: ClassVar[bool] = True
    size: int
    window: int = 0  # nanoseconds, for lanes that `windows` does not name
    windows: Mapping[str, int] = field(default_factory=dict)  # nanoseconds, by lane
    cost: int = NEVER  # of a call, at most; an item alone may exceed it
    bounds: tuple[int, ...] = ()  # the largest cost in each class but the last, ascending

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"a batch has 1 item or more, not {self.size}")
        if self.cost < 1:
            raise SettingError(f"a batch has a cost of 1 or more, not {self.cost}")
        if list(self.bounds) != sorted({bound for bound in self.bounds if bound > 0}):
            raise SettingError(f"buckets must be positive and ascending, not {self.bounds}")
        if min([self.window, *self.windows.values()]) < 0:
            raise SettingError("a window must not be negative")

    @property
    def buckets(self) -> tuple[int, ...]:
        """The widths that calls are padded to."""
        return self.bounds

    def start(self, view: View) -> Start:
        if view.running:
            return NOBODY
        classes: dict[int, list[Sequence]] = {}
        for line in view.lines:
            for part in (line.waiting, line.relegated):
                for sequence in part:
                    classes.setdefault(self._class(sequence), []).append(sequence)
        cost, wake_at = view.estimates.calls or UNKNOWN, NEVER
        ready: list[tuple[tuple[bool, int, int, int], list[Sequence]]] = []
        priorities = {line.lane.name: line.lane.priority for line in view.lines}
        for number, waiting in classes.items():
            members = self._members(waiting, priorities, cost, view.now)
            due = min([self._due(each) for each in waiting])
            due = min(due, deadline(members[0]) - cost.surely(self._cells(members)))
            if len(waiting) >= self.size or due <= view.now or view.closing:
                late = deadline(members[0]) - view.now < cost.surely(self._cells(members[:1]))
                ready.append(((late, *_urgency(members[0], priorities)), members))
            else:
                wake_at = min(wake_at, due)
        if not ready:
            return Start(wake_at=wake_at)
        _, chosen = min(ready, key=lambda each: each[0])
        exclusive = bool(self.bounds)
        first = frozenset(chosen)
        return Start(len(chosen), exclusive, self.bounds, first=first, only=True)

    def _class(self, sequence: Sequence) -> int:
        return bisect_left(self.bounds, sequence.prompt)

    def _due(self, sequence: Sequence) -> int:
        request = sequence.request
        return request.arrived + self.windows.get(request.lane, self.window)

    def _members(
        self, waiting: list[Sequence], priorities: Mapping[str, int], cost: CallCost, now: int
    ) -> list[Sequence]:
        """Of one class, those that are called next, the most urgent first."""
        ranked = sorted(waiting, key=lambda each: _urgency(each, priorities))
        whole = self._cells(ranked[: self.size]) if len(ranked) > self.size else 0
        late = [each for each in ranked if deadline(each) - now < self._least(each, whole, cost)]
        if late:
            behind = set(late)
            ranked = [each for each in ranked if each not in behind] + late
        members, tightest = ranked[:1], deadline(ranked[0]) - now
        if tightest < self._least(ranked[0], whole, cost):
            tightest = NEVER  # it is late already, and so are all others
        widest, total = self._width(ranked[0].prompt), ranked[0].prompt
        for each in ranked[1 : self.size]:
            widest, total = max(widest, self._width(each.prompt)), total + each.prompt
            cells = widest * (len(members) + 1) if self.bounds else total
            if cells > self.cost or cost.surely(cells) > tightest:
                break
            members.append(each)
        return members

    def _least(self, sequence: Sequence, whole: int, cost: CallCost) -> int:
        """Nanoseconds of the shortest call that it may be in."""
        return cost.surely(whole or self._cells([sequence]))

    def _cells(self, members: list[Sequence]) -> int:
        """What a call of these computes: with bounds, all are as wide as the class."""
        if not self.bounds:
            return sum([each.prompt for each in members])
        return len(members) * self._width(max([each.prompt for each in members]))

    def _width(self, cells: int) -> int:
        """What so many cells are padded to."""
        at = bisect_left(self.bounds, cells)
        return self.bounds[at] if at < len(self.bounds) else cells


def deadline(sequence: Sequence) -> int:
    """When it must have ended: by its lane's budget or by its own deadline."""
    return min(sequence.done_by, sequence.request.end_by)


def _urgency(sequence: Sequence, priorities: Mapping[str, int]) -> tuple[int, int, int]:
    return deadline(sequence), priorities[sequence.request.lane], sequence.number
