"""Whose next token may come later? A Defer answers, once per step, about those who run."""

from dataclasses import dataclass
from typing import Protocol

from headway.core.sequence import TIMED, Sequence
from headway.core.view import View


class Defer(Protocol):
    """Which of the running may miss a step. They are considered together with the prompts, in
    the order policy's order, and served while the step has tokens and time left."""

    def deferred(self, view: View) -> frozenset[Sequence]:
        """Of those who run, whose next token may come later."""
        ...


NOBODY = frozenset[Sequence]()


@dataclass(frozen=True, slots=True)
class Nobody:
    """Each gets its next token in each step."""

    def deferred(self, view: View) -> frozenset[Sequence]:
        return NOBODY


@dataclass(frozen=True, slots=True)
class WithoutDeadline:
    """Those whose lane has no budget, or who cannot keep it any more, but not within the least
    slots of their lane."""

    def deferred(self, view: View) -> frozenset[Sequence]:
        found, kept = list[Sequence](), dict[str, int]()
        least = {line.lane.name: line.lane.slots.least for line in view.lines}
        for sequence in view.running:
            if sequence.tier == TIMED:
                continue
            lane = sequence.request.lane
            if kept.get(lane, 0) < least[lane]:
                kept[lane] = kept.get(lane, 0) + 1
            else:
                found.append(sequence)
        return frozenset(found)
