"""Whose blocks are taken? A Preempt answers, in a step that runs out of blocks or slots."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headway.core.sequences.sequence import Sequence
from headway.core.view import View


class Preempt(Protocol):
    """The order in which running sequences lose their blocks when memory is short.

    A policy may also have an attribute `across`. True: sequences take blocks and slots from those
    of a later tier (sequence.TIMED ...), down to the least that lanes keep. Later tiers come first.
    """

    def victims(self, view: View) -> Iterator[Sequence]:
        """Yield the running sequences, the first victim first. The plan skips some (Victims)."""
        ...


@dataclass(frozen=True, slots=True)
class Youngest:
    """Take the last to arrive first, and the last victim only when no other is left."""

    def victims(self, view: View) -> Iterator[Sequence]:
        # A generator, so that only a step that lacks blocks sorts.
        yield from sorted(view.running, key=lambda s: (s.number == view.last_victim, -s.number))


@dataclass(frozen=True, slots=True)
class ByLane:
    """Take sequences without a deadline first, then those that are late already. Within a tier,
    spare the last victim while there are others, and take worse lanes first; in a lane, take the
    one that can lose the fewest tokens, then the last to arrive.

    Blocks that others use stay. So a sequence can lose only tokens in blocks of its own, and does
    lose those whose blocks are reused before it runs again.
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
    """Computed tokens in blocks that no other sequence uses."""
    if not shared:
        return sequence.computed
    return sequence.computed - len(shared.intersection(sequence.blocks)) * block_size
