"""How much of a workflow's deadline does each stage get? (Learned, Fixed, Undivided)

Asked when an item enters a stage. The answer is that stage's deadline: the stage serves its items
in the order of their deadlines, holds nobody beyond it for a fuller call, and cuts calls for it
(core/policies/calls.py). Nobody is dropped for it: only the workflow's own deadline does that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headway.core.request import NEVER
from headway.errors import SettingError


class Need(NamedTuple):
    """What a stage is expected to take of an item that entered now, in nanoseconds."""

    service: int = 0  # of a call as full as they are of late; nearly all take no longer
    queue: int = 0  # until that begins, on average of late
    alone: int = 0  # of a call of one item, on average; 0 before any was seen


class Entry(NamedTuple):
    """An item that enters a stage. Times in nanoseconds, on one clock."""

    arrived: int  # its workflow
    now: int
    end_by: int  # its workflow's deadline; NEVER: none
    stage: int  # which it enters, in the order in which a workflow passes them


class Splitting(Protocol):
    """A rule that splits deadlines."""

    def check(self, stages: int) -> None:
        """Raises SettingError unless it can split over so many stages."""
        ...

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
        """By when the stage should have its result; NEVER: no matter. needs: of all stages."""
        ...


@dataclass(frozen=True, slots=True)
class Learned:
    """A stage gets the time of one call, and at most its proportion of what is left: by what the
    stages that are left are expected to take, a full call and the line before it. The last stage
    gets all that is left. Before its first call a stage gets no time, so that it starts at once:
    calls of several sizes teach more than calls that were held until they were full.

    Time to spare stays with the whole. A stage that were given it would hold items for fuller calls
    while it could work, or cut its calls where it begins to run out (docs/decisions/0031).
    """

    def check(self, stages: int) -> None:
        """It can split over any number."""

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
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
    """Each stage has a fixed share of the deadline, counted from the workflow's arrival."""

    shares: tuple[float, ...]  # by stage; they sum to 1

    def __post_init__(self) -> None:
        if min(self.shares, default=0) <= 0 or abs(sum(self.shares) - 1) > 1e-6:
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


@dataclass(frozen=True, slots=True)
class Undivided:
    """Every stage may take all that is left."""

    def check(self, stages: int) -> None:
        """There is nothing to split."""

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
        return entry.end_by
