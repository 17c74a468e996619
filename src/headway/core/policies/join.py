"""When may waiting work start? Asked once per step, over all lanes."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headway.core.request import NEVER
from headway.core.sequence import Sequence
from headway.core.view import View
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Start:
    """How many of the waiting may start now, and how they run."""

    count: int = 0
    exclusive: bool = False  # as a group that is the whole batch until its last member ends
    buckets: tuple[int, ...] = ()  # of a group: its padded widths, ascending; none: the longest
    together: bool = False  # whose callers are answered when it ends
    first: frozenset[Sequence] = frozenset()  # members before all others
    only: bool = False  # and nobody else
    wake_at: int = NEVER  # if nothing changes, when to ask again


class Join(Protocol):
    def start(self, view: View) -> Start: ...


def _check(size: int, buckets: tuple[int, ...] = ()) -> None:
    if size < 1:
        raise SettingError(f"a join policy's size must be 1 or more, not {size}")
    if list(buckets) != sorted({b for b in buckets if b > 0}):
        raise SettingError(f"buckets must be positive, ascending and distinct, not {buckets}")


@dataclass(frozen=True, slots=True)
class Static:
    """Start exactly `size` together; fewer only when no more will come.

    The group's rows are padded to the longest of them, or up to the next of `buckets`. Callers
    are answered as their own tokens come, which is the baseline's best case, or `together`.
    """

    size: int
    buckets: tuple[int, ...] = ()  # tokens
    together: bool = False  # answers are held until the group ends, as plain generate does

    def __post_init__(self) -> None:
        _check(self.size, self.buckets)

    def start(self, view: View) -> Start:
        waiting = view.waiting
        if view.running or not waiting or (waiting < self.size and not view.closing):
            return Start()
        count = min(waiting, self.size)
        return Start(count, exclusive=True, buckets=self.buckets, together=self.together)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Start up to `size` once that many wait or some lane's oldest has waited its window.

    One window for all lanes makes the strictest budget the hostage of the laxest: hence one each.
    Whose window is over are members first, in the order policy's order. (Triton's dynamic batcher
    and Ray Serve's `@serve.batch` have one window.)
    """

    size: int
    window: int  # nanoseconds, for lanes that `windows` does not name
    windows: Mapping[str, int] = field(default_factory=dict)  # nanoseconds, by lane
    buckets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check(self.size, self.buckets)
        for window in (self.window, *self.windows.values()):
            if window < 0:
                raise SettingError(f"a window must be 0 or more nanoseconds, not {window}")

    def start(self, view: View) -> Start:
        waiting = view.waiting
        if view.running or not waiting:
            return Start()
        next_due, overdue = NEVER, list[Sequence]()
        for line in view.lines:
            window = self.windows.get(line.lane.name, self.window)
            for sequence in line.waiting:  # in order of arrival: the first not due ends it
                due = sequence.request.arrived + window
                if due > view.now:
                    next_due = min(next_due, due)
                    break
                overdue.append(sequence)
        if waiting < self.size and not overdue and not view.closing:
            return Start(wake_at=next_due)
        count, first = min(waiting, self.size), frozenset(overdue)
        return Start(count, exclusive=True, buckets=self.buckets, first=first)


@dataclass(frozen=True, slots=True)
class LengthClasses:
    """Groups of one prompt length class each: short with short, so that less is padding.

    A class starts when `size` of it wait or its oldest has waited `window`; of several, the one
    whose oldest came first.
    """

    size: int
    bounds: tuple[int, ...]  # longest prompt of each class but the last, ascending; tokens
    window: int  # nanoseconds

    def __post_init__(self) -> None:
        _check(self.size, self.bounds)
        if self.window < 0:
            raise SettingError(f"a window must be 0 or more nanoseconds, not {self.window}")

    def start(self, view: View) -> Start:
        if view.running:
            return Start()
        classes: dict[int, list[Sequence]] = {}
        waiting = [sequence for line in view.lines for sequence in line.waiting]
        for sequence in sorted(waiting, key=lambda s: s.number):
            of = bisect_left(self.bounds, len(sequence.request.prompt))
            classes.setdefault(of, []).append(sequence)
        ripe, wake_at = list[list[Sequence]](), NEVER
        for members in classes.values():
            due = members[0].request.arrived + self.window
            if len(members) >= self.size or due <= view.now or view.closing:
                ripe.append(members)
            wake_at = min(wake_at, due)
        if not ripe:
            return Start(wake_at=wake_at)
        chosen = min(ripe, key=lambda members: members[0].number)[: self.size]
        return Start(len(chosen), exclusive=True, first=frozenset(chosen), only=True)


@dataclass(frozen=True, slots=True)
class Continuous:
    """Start whatever waits, at any step, while fewer than `size` run (Orca, OSDI 2022)."""

    size: int

    def __post_init__(self) -> None:
        _check(self.size)

    def start(self, view: View) -> Start:
        return Start(max(0, min(view.waiting, self.size - len(view.running))))
