"""Niyama's order, to compare ByDeadline with: from deadline to least work by a weight."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from headway.core.policies.by_deadline import SECOND, ByDeadline
from headway.core.request import NEVER
from headway.core.sequences.sequence import TIMED, Sequence
from headway.core.view import View


@dataclass(frozen=True, slots=True)
class BySlidingDeadline:
    """By deadline + alpha x work (Niyama, 2025); alpha grows with the work that waits.

    Requests that are late or have no budget follow as under ByDeadline.
    """

    needs_cost: ClassVar[bool] = True
    gain: float  # alpha, for each second of work that waits

    def rank(self, view: View, running: Collection[Sequence]) -> Iterator[Sequence]:
        work = view.estimates.work
        ranked = list(ByDeadline(most_in_time=False).rank(view, running))
        timed = [s for s in ranked if s.tier == TIMED]
        alpha = self.gain * sum(work(s) for s in timed) / SECOND
        yield from sorted(timed, key=lambda s: (_due(s, view) + alpha * work(s), s.number))
        yield from [s for s in ranked if s.tier != TIMED]


def _due(sequence: Sequence, view: View) -> int:
    """As ByDeadline has it: when the next token is due, or the rest of the answer must begin."""
    if sequence.done_by == NEVER:
        return sequence.next_by
    left = sequence.limit - len(sequence.tokens)
    return min(sequence.next_by, sequence.done_by - left * view.estimates.shortest)
