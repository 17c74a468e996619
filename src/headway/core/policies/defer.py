"""Which running sequences may get their next token later? A Defer answers, once per step."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from headway.core.cost.lengths import Lengths
from headway.core.cost.promises import SURE
from headway.core.request import NEVER
from headway.core.sequences.sequence import TIMED, Sequence, due_after
from headway.core.view import View
from headway.errors import SettingError


class Defer(Protocol):
    """Which running sequences may miss a step. They are considered together with the prompts, in
    the order policy's order, and served while the step has tokens and time left.

    A policy may also have an attribute `steady`. True promises that, while every running sequence
    decodes and none joins, the answer changes only when one of them ends: a simulation then asks
    less often.
    """

    def deferred(self, view: View, *, joins: bool) -> frozenset[Sequence]:
        """The running sequences whose next token may come later. joins: whether a waiting sequence
        may join in this step."""
        ...


NOBODY = frozenset[Sequence]()


@dataclass(frozen=True, slots=True)
class Nobody:
    """Defer none: every running sequence gets its next token in each step."""

    steady: ClassVar[bool] = True

    def deferred(self, view: View, *, joins: bool) -> frozenset[Sequence]:
        return NOBODY


@dataclass(frozen=True, slots=True)
class WithoutDeadline:
    """Defer sequences whose lane has no budget or that can no longer keep it. The first of each
    lane, as many as its least slots, are not deferred."""

    steady: ClassVar[bool] = True

    def deferred(self, view: View, *, joins: bool) -> frozenset[Sequence]:
        later = [sequence for sequence in view.running if sequence.tier != TIMED]
        if not later:
            return NOBODY
        least = {line.lane.name: line.lane.slots.least for line in view.lines}
        if not any(least.values()):
            return frozenset(later)
        found: list[Sequence] = []
        kept: dict[str, int] = {}
        for sequence in later:
            lane = sequence.request.lane
            if kept.get(lane, 0) < least[lane]:
                kept[lane] = kept.get(lane, 0) + 1
            else:
                found.append(sequence)
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class WithTimeToSpare:
    """As WithoutDeadline. While there are prompts to compute, also defer sequences in time whose
    next token is not due soon: the prompts get their time.

    Soon is, by default, within two steps full of prompts (by_deadline.LONG): a sequence that misses
    a step can still have its token in time in the next one. An answer with a deadline for its end
    may miss steps if it would still meet that at half of its lane's pace. SCORPIO (2025) lets loose
    lanes skip steps by credits.
    """

    steady: ClassVar[bool] = True
    needs_cost: ClassVar[bool] = True
    soon: int = 20  # in steps of one token

    def __post_init__(self) -> None:
        if self.soon < 1:
            raise SettingError(f"soon must be 1 or more steps of one token, not {self.soon}")

    def deferred(self, view: View, *, joins: bool) -> frozenset[Sequence]:
        found = WithoutDeadline().deferred(view, joins=joins)
        running = view.running
        if not joins and all(len(s.tokens) - s.scheduled == 1 for s in running):
            return found
        soon = view.now + self.soon * view.estimates.shortest
        spare = due_after(running, soon)
        pace, now, lengths = view.estimates.pace, view.now, view.estimates.lengths
        half = {line.lane.name: 2 * pace(line.lane.name) for line in view.lines}
        return found.union(
            [
                s
                for s in spare
                if s.done_by == NEVER
                or _has_time(s, s.done_by - now, half[s.request.lane], lengths)
            ]
        )


def _has_time(sequence: Sequence, left: int, pace: int, lengths: Lengths) -> bool:
    """Whether the answer would end in the time that is left, or nothing is known of its length."""
    done = len(sequence.tokens)
    return (
        (sequence.limit - done) * pace <= left
        or not lengths.knows(sequence)
        or (lengths.end(sequence, SURE) - done) * pace <= left
    )


DEFERS: dict[str, Defer] = {  # as operators name them
    "nobody": Nobody(),
    "without-deadline": WithoutDeadline(),
    "time-to-spare": WithTimeToSpare(),
}
