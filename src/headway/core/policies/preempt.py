"""Whose blocks are taken? A Preempt answers, once in a step that runs out of blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headway.core.sequence import Sequence
from headway.core.view import View


class Preempt(Protocol):
    """The order in which running sequences lose their blocks when memory is short.

    A policy may also have an attribute `across`. True: sequences take blocks and slots from those
    of a later tier (sequence.TIMED ...), down to the least that lanes keep. Later tiers come first.
    """

    def victims(self, view: View) -> Iterator[Sequence]:
        """Yield the running, the first victim first. The plan skips those it must not take."""
        ...


@dataclass(frozen=True, slots=True)
class Youngest:
    """The last to arrive is taken first; the last victim only when nobody else is left."""

    def victims(self, view: View) -> Iterator[Sequence]:
        # A generator, so that only a step that lacks blocks sorts.
        yield from sorted(view.running, key=lambda s: (s.number == view.last_victim, -s.number))


@dataclass(frozen=True, slots=True)
class ByLane:
    """Those without a deadline first, then those that are late already. Among them, the last
    victim is spared while there are others, and worse lanes come first; in a lane, whoever can
    lose the least, then the last to arrive.

    What others use stays. So a sequence can lose the tokens of its own blocks only; it does lose
    those whose blocks are reused before it runs again.
    """

    across: ClassVar[bool] = True

    def victims(self, view: View) -> Iterator[Sequence]:
        priority = {line.lane.name: line.lane.priority for line in view.lines}
        shared = frozenset(view.shared)
        yield from sorted(
            view.running,
            key=lambda s: (
                -s.tier,
                s.number == view.last_victim,
                -priority[s.request.lane],
                own_tokens(s, shared, view.block_size),
                -s.number,
            ),
        )


def own_tokens(sequence: Sequence, shared: frozenset[int], block_size: int) -> int:
    """Tokens that are computed in blocks that nobody else uses."""
    if not shared:
        return sequence.computed
    return sequence.computed - len(shared.intersection(sequence.blocks)) * block_size
