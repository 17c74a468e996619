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

    service: int = 0  # of its call; nearly all calls take no longer
    queue: int = 0  # until that begins, at present


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
    """What is left is divided in proportion to what the stages that are left are expected to take.

    So a stage that grows slow, or before which a line grows, gets more of it, and what an earlier
    stage saved or lost is shared by all that follow. While nothing is known, stages get the same.
    """

    def check(self, stages: int) -> None:
        """It can split over any number."""

    def due(self, entry: Entry, needs: Sequence[Need]) -> int:
        if entry.end_by == NEVER:
            return NEVER
        left = max(0, entry.end_by - entry.now)
        ahead = [need.service + need.queue for need in needs[entry.stage :]]
        if total := sum(ahead):
            return entry.now + left * ahead[0] // total
        return entry.now + left // len(ahead)


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
