"""Who is considered in a step, and in which order: the order policy's, but for two things."""

from collections.abc import Callable, Collection, Iterator
from itertools import chain

from headway.core.lane import Line
from headway.core.policies.join import Start
from headway.core.sequence import TIMED, Sequence


def named_first(ranked: Iterator[Sequence], start: Start) -> Iterator[Sequence]:
    """Those that the join policy names go before all others, or alone."""
    if not start.first:
        return ranked
    listed, first = list(ranked), start.first
    rest = () if start.only else (each for each in listed if each not in first)
    return chain((each for each in listed if each in first), rest)


def in_time_first(
    ranked: Iterator[Sequence],
    lines: tuple[Line, ...],
    running: Collection[Sequence],
    lacks_slots: Callable[[Sequence], bool],
    misfits: list[Sequence],
) -> Iterator[Sequence]:
    """Whoever is in time and waits joins before those of later tiers do, whose slots it would take
    in the next step; but not before those whose lane lacks slots of its least.

    running: those of them who ran before the step. misfits: who has not fitted so far. While
    somebody in time is among them, nobody of a later tier joins: it would take what is left of the
    memory, and give it back in the next step.
    """
    if not any(line.later for line in lines):
        return ranked
    return _in_time_first(ranked, lines, frozenset(running), lacks_slots, misfits)


def _in_time_first(
    ranked: Iterator[Sequence],
    lines: tuple[Line, ...],
    ran: frozenset[Sequence],
    lacks_slots: Callable[[Sequence], bool],
    misfits: list[Sequence],
) -> Iterator[Sequence]:
    ahead = sum([len(line.waiting) for line in lines if line.is_timed])
    seen: set[Sequence] = set()  # an order may name somebody twice
    later: list[Sequence] = []
    for sequence in ranked:
        if sequence in ran:
            yield sequence
        elif sequence.tier == TIMED:
            ahead -= sequence not in seen
            seen.add(sequence)
            yield sequence
        elif lacks_slots(sequence):
            yield sequence
        else:
            later.append(sequence)
        if later and ahead <= 0 and all(misfit.tier != TIMED for misfit in misfits):
            yield from later
            later = []
    if all(misfit.tier != TIMED for misfit in misfits):
        yield from later
