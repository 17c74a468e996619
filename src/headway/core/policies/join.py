"""When may waiting requests start? A Join answers, once per step, over all lanes."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from headway.core.cost.lane_sizes import LaneSizes
from headway.core.request import NEVER
from headway.core.sequences.sequence import Sequence
from headway.core.view import View
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Start:
    """How many waiting requests may start now, which ones, and how they run."""

    count: int = 0
    exclusive: bool = False  # as a group that is the whole batch until its last member ends
    buckets: tuple[int, ...] = ()  # widths a group is padded to, ascending; none: its longest row
    together: bool = False  # a group's callers are answered when it ends
    first: frozenset[Sequence] = frozenset()  # these start before all others
    only: bool = False  # no others than `first` start
    wake_at: int = NEVER  # when to ask again if nothing changes


NOBODY = Start()


class Join(Protocol):
    """When waiting requests may start. A policy may also have an attribute `steady`. True promises
    that, while any sequence runs, the answer changes only when a request arrives or ends: a
    simulation then asks less often."""

    def start(self, view: View) -> Start:
        """Which of the waiting requests start now; if none do, when to ask again."""
        ...


def _check(size: int, buckets: tuple[int, ...] = ()) -> None:
    if size < 1:
        raise SettingError(f"a join policy's size must be 1 or more, not {size}")
    if list(buckets) != sorted({b for b in buckets if b > 0}):
        raise SettingError(f"buckets must be positive, ascending and distinct, not {buckets}")


@dataclass(frozen=True, slots=True)
class Static:
    """Start exactly `size` together; fewer only when no more will come.

    The group's rows are padded to the longest of them, or to the next of `buckets`. Callers are
    answered as their own tokens come, which is this baseline's best case, or all `together`.
    """

    steady: ClassVar[bool] = True
    size: int
    buckets: tuple[int, ...] = ()  # tokens
    together: bool = False  # answers are withheld until the group ends, as plain generate does

    def __post_init__(self) -> None:
        _check(self.size, self.buckets)

    def start(self, view: View) -> Start:
        waiting = view.waiting
        if view.running or not waiting or (waiting < self.size and not view.closing):
            return NOBODY
        count = min(waiting, self.size)
        return Start(count, exclusive=True, buckets=self.buckets, together=self.together)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Start up to `size` once that many wait, or once some lane's oldest has waited its window.

    Each lane can have its own window: with one for all, the lane with the strictest budget waits
    as long as the most patient one. (Triton's dynamic batcher and Ray Serve's `@serve.batch` have
    one window.) Requests whose window is over join first, in the order of the order policy.
    """

    steady: ClassVar[bool] = True
    size: int
    window: int  # nanoseconds, for lanes that `windows` does not name
    windows: Mapping[str, int] = field(default_factory=dict)  # nanoseconds, by lane
    buckets: tuple[int, ...] = ()
    least: int = 0  # the size follows the load between this and `size`; 0: it is fixed
    # By lane, in nanoseconds: its window follows the load between this and that of `windows`. Under
    # the empty name: for all lanes that `windows` does not name, up to `window`.
    lows: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.size, self.buckets)
        if not 0 <= self.least <= self.size:
            raise SettingError(
                f"between {self.least} and {self.size}: the first must not exceed the second"
            )
        for window in (self.window, *self.windows.values()):
            if window < 0:
                raise SettingError(f"a window must be 0 or more nanoseconds, not {window}")
        for lane, low in self.lows.items():
            high = self.windows.get(lane) if lane else self.window
            if high is None:
                raise SettingError(f"lane {lane!r} has no window that could follow the load")
            if not 0 <= low <= high:
                raise SettingError(
                    f"a window between {low / 1e6:g} and {high / 1e6:g} ms: the first must not "
                    "exceed the second"
                )

    def size_of(self, sizes: LaneSizes) -> int:
        """The most requests of a group at present."""
        return (sizes.group or self.least) if self.least else self.size

    def window_of(self, lane: str, sizes: LaneSizes) -> int:
        """The lane's window at present, in nanoseconds."""
        name = lane if lane in self.windows else ""
        if name in self.lows:
            return sizes.windows.get(name, self.lows[name])
        return self.windows.get(lane, self.window)

    def start(self, view: View) -> Start:
        waiting = view.waiting
        if view.running or not waiting:
            return NOBODY
        next_due, overdue, sizes = NEVER, list[Sequence](), view.estimates.sizes
        for line in view.lines:
            window = self.window_of(line.lane.name, sizes)
            for part in (line.waiting, line.relegated):
                for sequence in part:  # in order of arrival: stop at the first not due
                    due = sequence.request.arrived + window
                    if due > view.now:
                        next_due = min(next_due, due)
                        break
                    overdue.append(sequence)
        if waiting < (size := self.size_of(sizes)) and not overdue and not view.closing:
            return Start(wake_at=next_due)
        count, first = min(waiting, size), frozenset(overdue)
        return Start(count, exclusive=True, buckets=self.buckets, first=first)


@dataclass(frozen=True, slots=True)
class LengthClasses:
    """Start groups of prompts of similar length, so that there is less padding.

    A class starts when `size` of it wait or its oldest has waited `window`. If several classes
    are ready, the one whose oldest came first starts. Its rows are padded to the longest of them,
    or up to the bound of the class, so that there are as few shapes as classes. Prompts beyond the
    last bound are padded to the longest of their group either way.
    """

    steady: ClassVar[bool] = True
    size: int
    bounds: tuple[int, ...]  # tokens of the longest prompt in each class but the last, ascending
    window: int  # nanoseconds
    pad_to_bound: bool = False

    def __post_init__(self) -> None:
        _check(self.size, self.bounds)
        if self.pad_to_bound and not self.bounds:
            raise SettingError("pad_to_bound needs bounds to pad to")
        if self.window < 0:
            raise SettingError(f"a window must be 0 or more nanoseconds, not {self.window}")

    @property
    def buckets(self) -> tuple[int, ...]:
        """The widths that groups are padded to, as Static and Dynamic have them."""
        return self.bounds if self.pad_to_bound else ()

    def start(self, view: View) -> Start:
        if view.running:
            return NOBODY
        classes: dict[int, list[Sequence]] = {}
        waiting = [s for line in view.lines for s in (*line.waiting, *line.relegated)]
        for sequence in sorted(waiting, key=lambda s: s.number):
            number = bisect_left(self.bounds, len(sequence.request.prompt))
            classes.setdefault(number, []).append(sequence)
        ready, wake_at = list[list[Sequence]](), NEVER
        for members in classes.values():
            due = members[0].request.arrived + self.window
            if len(members) >= self.size or due <= view.now or view.closing:
                ready.append(members)
            wake_at = min(wake_at, due)
        if not ready:
            return Start(wake_at=wake_at)
        chosen = min(ready, key=lambda members: members[0].number)[: self.size]
        count, first = len(chosen), frozenset(chosen)
        return Start(count, exclusive=True, buckets=self.buckets, first=first, only=True)


@dataclass(frozen=True, slots=True)
class Continuous:
    """Start whatever waits, at any step, while fewer than `size` run (Orca, OSDI 2022)."""

    steady: ClassVar[bool] = True
    size: int

    def __post_init__(self) -> None:
        _check(self.size)

    def start(self, view: View) -> Start:
        count = min(view.waiting, self.size - len(view.running) + view.finishing)
        return Start(count) if count > 0 else NOBODY
