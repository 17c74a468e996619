"""Which items are the next call of a function? (Calls)"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headway.core.cost.call_cost import CallCost
from headway.core.lane import Line
from headway.core.policies.join import NOBODY, Start
from headway.core.request import NEVER
from headway.core.sequences.sequence import Sequence
from headway.core.view import View
from headway.errors import SettingError

UNKNOWN = CallCost()
# Nanoseconds to decide a call and hand it over, and the same for each of its items. The next call
# is decided this long before the running one ends, so that the function never waits for it.
LEAD, EACH = 300_000, 60_000


@dataclass(frozen=True, slots=True)
class Calls:
    """Start up to `size` items together when nothing runs, the earliest deadline first.

    A call starts once `size` items wait, its `cost` leaves no room for another item, or one has
    waited its window. It also starts when it would take longer (CallCost) than its first item has
    until its deadline or its planned end. With a window of 0 it starts at once, so that calls grow
    with the load by themselves.

    The call is cut where it would make its first item late. If more items wait than one call takes,
    those that a whole call would make late come last instead: small calls would make all later ones
    late (the early drop of Nexus, SOSP 2019; here they are served when there is time). Last of all
    come items whose own deadline is over before the call ends: they would be dropped. A call that
    has some of these is not decided while another runs.

    With `bounds` a call has items of one length class, padded to its bound.
    """

    steady: ClassVar[bool] = True
    size: int
    window: int = 0  # nanoseconds, for lanes that `windows` does not name
    windows: Mapping[str, int] = field(default_factory=dict)  # nanoseconds, by lane
    cost: int = NEVER  # of a call, at most; an item alone may exceed it
    bounds: tuple[int, ...] = ()  # the largest cost in each class but the last, ascending
    # The next call is decided while another one runs: once `size` items wait, else just before that
    # one ends. The executor must take two steps at once.
    ahead: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"a batch has 1 item or more, not {self.size}")
        if self.cost < 1:
            raise SettingError(f"a batch has a cost of 1 or more, not {self.cost}")
        if list(self.bounds) != sorted({bound for bound in self.bounds if bound > 0}):
            raise SettingError(f"buckets must be positive and ascending, not {self.bounds}")
        if self.ahead and self.bounds:
            raise SettingError("a call that is padded cannot be decided while another runs")
        if min([self.window, *self.windows.values()]) < 0:
            raise SettingError("a window must not be negative")

    @property
    def buckets(self) -> tuple[int, ...]:
        """The widths that calls are padded to."""
        return self.bounds

    def start(self, view: View) -> Start:
        running = view.running
        if running and (not self.ahead or any(not each.in_flight for each in running)):
            return NOBODY  # a part of its call may still be to come
        if running and (count := view.waiting) < self.size:
            lead = LEAD + EACH * count
            if view.ahead > lead:
                return Start(wake_at=view.now - lead)
            if not (view.ahead and count):
                return NOBODY
        cost, wake_at = view.estimates.calls or UNKNOWN, NEVER
        ready = list[tuple[tuple[bool, Ranked], list[Sequence]]]()
        for due, waiting in self._classes(view).values():
            members, full = self._members(waiting, cost, view.now)
            first, takes = members[0], cost.surely(self._cells(members))
            due = min(due, min(first[0], first[-1].request.planned) - takes)
            if full or due <= view.now or view.closing:
                late = first[0] - view.now < cost.surely(self._cells(members[:1]))
                ready.append(((late, first), [each[-1] for each in members]))
            else:
                wake_at = min(wake_at, due)
        if not ready:
            return Start(wake_at=wake_at)
        _, chosen = min(ready)
        if running and self._would_lose(chosen, cost, view.now):
            return NOBODY  # before that call ends, items may come that can be in time
        exclusive = bool(self.bounds)
        return Start(len(chosen), exclusive, self.bounds, first=frozenset(chosen), only=True)

    def _classes(self, view: View) -> dict[int, tuple[int, list["Ranked"]]]:
        """By length class: when the first window of its waiting items ends, and all these items."""
        classes: dict[int, tuple[int, list[Ranked]]] = {}
        for line in view.lines:
            window = self.windows.get(line.lane.name, self.window)
            place = line.lane.priority
            parts = {0: self._front(line)}
            if self.bounds:
                parts = {}
                for each in (*line.waiting, *line.relegated):
                    parts.setdefault(bisect_left(self.bounds, each.prompt), []).append(each)
            for number, waiting in parts.items():
                if waiting:
                    due, ranked = classes.get(number, (NEVER, []))
                    due = min(due, waiting[0].request.arrived + window)
                    ranked += [(deadline(each), place, each.number, each) for each in waiting]
                    classes[number] = due, ranked
        return classes

    def _front(self, line: Line) -> list[Sequence]:
        """The lane's items that the next call may have. If none has a deadline, these are the first
        `size`: a long line need not be ranked whole at every call."""
        waiting = [*line.waiting, *line.relegated]
        if line.has_dues or line.relegated or any(s.request.end_by != NEVER for s in waiting):
            return waiting
        return waiting[: self.size]

    def _members(
        self, waiting: list["Ranked"], cost: CallCost, now: int
    ) -> tuple[list["Ranked"], bool]:
        """The items of one class that are called next, the most urgent first, and whether waiting
        for more would be in vain."""
        ranked = sorted(waiting)  # no two numbers are equal, so sequences are not compared
        latest = ranked[0][0]
        if latest != NEVER and len(ranked) > self.size:
            first = now + cost.surely(self._cells(ranked[: self.size]))
            late = sum([each[0] < first for each in ranked])
            ranked = ranked[late:] + lost_last(ranked[:late], first)
            latest = ranked[0][0] if late < len(ranked) else NEVER
        elif latest != NEVER:
            first = now + cost.surely(ranked[0][-1].prompt)
            late = sum([each[0] < now + cost.surely(each[-1].prompt) for each in ranked])
            ranked = ranked[late:] + lost_last(ranked[:late], first)
            latest = ranked[0][0] if late < len(ranked) else NEVER
        members, total, widest = ranked[:1], ranked[0][-1].prompt, ranked[0][-1].prompt
        full = len(ranked) >= self.size
        for each in ranked[1 : self.size]:
            prompt = each[-1].prompt
            widest, total = max(widest, prompt), total + prompt
            cells = self._width(widest) * (len(members) + 1) if self.bounds else total
            if cells > self.cost or now + cost.surely(cells) > latest:
                return members, full or cells > self.cost
            members.append(each)
        cells = self._cells(members)
        another = cells // len(members) if self.bounds else 1  # costs this much or more
        return members, full or cells + another > self.cost

    def _would_lose(self, chosen: list[Sequence], cost: CallCost, now: int) -> bool:
        """Whether the call ends after an item's own deadline, so that its result would be lost."""
        ends = now + cost.surely(sum([each.prompt for each in chosen]))
        return any(each.request.end_by < ends for each in chosen)

    def _cells(self, members: list["Ranked"]) -> int:
        """Cells that a call of these computes: with bounds, all are as wide as their class."""
        prompts = [each[-1].prompt for each in members]
        return len(prompts) * self._width(max(prompts)) if self.bounds else sum(prompts)

    def _width(self, cells: int) -> int:
        """The width that so many cells are padded to."""
        at = bisect_left(self.bounds, cells)
        return self.bounds[at] if at < len(self.bounds) else cells


Ranked = tuple[int, int, int, Sequence]  # deadline, the lane's priority, number


def lost_last(late: list[Ranked], ends: int) -> list[Ranked]:
    """Sort late items: last come those whose own deadline is over when the call ends, since they
    would be dropped with their results."""
    return sorted(late, key=lambda each: each[-1].request.end_by < ends)


def deadline(sequence: Sequence) -> int:
    """When the item must have ended: by its lane's budget or its own deadline, the earlier."""
    own = sequence.request.end_by
    return own if own < sequence.done_by else sequence.done_by
