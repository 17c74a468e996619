"""By when must a stage have its result, and by when should it? (Learned, Fixed, Undivided)

A rule sets two times when an item enters a stage. `due` is the latest at which the stage's result
is of use. The stage serves its items in order of `due`, serves items last that it would make late,
and cuts a call that would make its first item late. `planned` is the stage's share of the deadline:
no item is held for a fuller call beyond it (core/policies/calls.py). Neither time drops an item;
only the workflow's own deadline does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headway.core.request import NEVER
from headway.errors import SettingError


class Need(NamedTuple):
    """What a stage is expected to take of a workflow that entered now, in nanoseconds."""

    service: int = 0  # of a call as full as recent ones; nearly all take no longer
    queue: int = 0  # until that call begins, on recent average
    alone: int = 0  # of the workflow's items in calls of their own; 0 before any call was seen
    behind: int = 0  # of such a call that is already running; 0: the stage never waits for one

    @property
    def least(self) -> int:
        """What must be left for the stage if the workflow goes before all others there."""
        return self.behind + self.alone


class Entry(NamedTuple):
    """An item that enters a stage. Times in nanoseconds, on one clock."""

    arrived: int  # arrival of its workflow
    now: int
    end_by: int  # its workflow's deadline; NEVER: none
    stage: int  # index of the stage, in the order in which a workflow passes them


class Splitting(Protocol):
    """A rule that splits deadlines. `needs` are those of all stages."""

    def check(self, stages: int) -> None:
        """Check that the rule can split over this many stages. Raises SettingError."""
        ...

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
        """The latest time at which the stage's result is of use; NEVER: no matter."""
        ...

    def planned(self, entry: Entry, needs: Sequence[Need]) -> int:
        """The time by which the stage should have its result; NEVER: no matter."""
        ...


@dataclass(frozen=True, slots=True)
class Learned:
    """Splits by what the stages were learned to take.

    A stage's result is due when the deadline leaves just enough for the stages that follow: in each
    of them, a call of the workflow's items alone, and one call before it. So every stage serves the
    item with the least slack first. It serves an item last if the workflow would end late.

    The planned time is that of one call, and at most the stage's proportion of the time left. The
    proportion is by what each remaining stage is expected to take: a full call and the line before
    it. The last stage gets all that is left. Before its first call a stage gets no time and starts
    at once, because calls of several sizes teach more than calls held until they are full.

    Slack stays with the whole workflow. A stage that got it would hold items for fuller calls while
    it could work (docs/decisions/0031, 0040).
    """

    def check(self, stages: int) -> None:
        """Accept any number of stages."""

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
        if entry.end_by == NEVER:
            return NEVER
        return entry.end_by - sum([need.least for need in needs[entry.stage + 1 :]])

    def planned(self, entry: Entry, needs: Sequence[Need]) -> int:
        if entry.end_by == NEVER:
            return NEVER
        left = max(0, entry.end_by - entry.now)
        ahead = [need.service + need.queue for need in needs[entry.stage :]]
        total, own = sum(ahead), needs[entry.stage].alone
        proportion = left * ahead[0] // total if total else left // len(ahead)
        if len(ahead) == 1:
            return entry.now + proportion
        return entry.now + min(proportion, own)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Gives each stage a fixed share of the deadline, counted from the workflow's arrival."""

    shares: tuple[float, ...]  # by stage; they sum to 1

    def __post_init__(self) -> None:
        is_whole = abs(sum(self.shares) - 1) <= 1e-6  # not if a share is nan
        if not is_whole or min(self.shares, default=0) <= 0:
            raise SettingError(f"shares are positive and sum to 1, not {self.shares}")

    def check(self, stages: int) -> None:
        if len(self.shares) != stages:
            raise SettingError(f"{len(self.shares)} shares do not fit {stages} stages")

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
        if entry.end_by == NEVER:
            return NEVER
        if entry.stage == len(needs) - 1:
            return entry.end_by
        gone = sum(self.shares[: entry.stage + 1])
        return entry.arrived + round((entry.end_by - entry.arrived) * gone)

    def planned(self, entry: Entry, needs: Sequence[Need]) -> int:
        return self.due(entry, needs)


@dataclass(frozen=True, slots=True)
class Undivided:
    """Lets every stage take all that is left."""

    def check(self, stages: int) -> None:
        """Accept any number of stages: there is nothing to split."""

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
        return entry.end_by

    def planned(self, entry: Entry, needs: Sequence[Need]) -> int:
        return entry.end_by
