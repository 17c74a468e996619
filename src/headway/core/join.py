"""When may waiting work start? Asked once per step, over all lanes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headway.core.request import NEVER, Sequence
from headway.core.view import View
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Start:
    """How many of the waiting may start now, and how they run."""

    count: int = 0
    exclusive: bool = False  # as a group that is the whole batch until its last member ends
    buckets: tuple[int, ...] = ()  # of a group: its padded widths, ascending; none: the longest
    due: tuple[Sequence, ...] = ()  # members before all others, in this order
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

    The group's rows are padded to the longest of them, or up to the next of `buckets`.
    """

    size: int
    buckets: tuple[int, ...] = ()  # tokens

    def __post_init__(self) -> None:
        _check(self.size, self.buckets)

    def start(self, view: View) -> Start:
        waiting = view.waiting
        if view.running or not waiting or (waiting < self.size and not view.closing):
            return Start()
        return Start(min(waiting, self.size), exclusive=True, buckets=self.buckets)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Start up to `size` once that many wait or some lane's oldest has waited its window.

    One window for all lanes makes the strictest budget the hostage of the laxest: hence one each.
    Whose window is over are members first, the longest overdue at the head. (Triton's dynamic
    batcher and Ray Serve's `@serve.batch` have one window.)
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
        first = NEVER
        overdue: list[tuple[int, int, Sequence]] = []  # when it fell due, its number, itself
        for line in view.lines:
            window = self.windows.get(line.lane.name, self.window)
            for sequence in line.waiting:  # in order of arrival: the first not due ends it
                due = sequence.request.arrived + window
                if due > view.now:
                    first = min(first, due)
                    break
                overdue.append((due, sequence.number, sequence))
        if waiting < self.size and not overdue and not view.closing:
            return Start(wake_at=first)
        members = tuple(sequence for _, _, sequence in sorted(overdue, key=lambda o: o[:2]))
        return Start(min(waiting, self.size), exclusive=True, buckets=self.buckets, due=members)


@dataclass(frozen=True, slots=True)
class Continuous:
    """Start whatever waits, at any step, while fewer than `size` run (Orca, OSDI 2022)."""

    size: int

    def __post_init__(self) -> None:
        _check(self.size)

    def start(self, view: View) -> Start:
        return Start(max(0, min(view.waiting, self.size - len(view.running))))
