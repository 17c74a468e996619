"""How often the oldest sequence has been passed over (Turns): by age, each has a turn to begin."""

from collections.abc import Iterable

from headway.core.lane import Line
from headway.core.sequences.sequence import UNTIMED, Sequence


class Turns:
    """How many sequences have begun to run since the oldest waiting one did. Lanes with and without
    a budget are counted apart, because one kind may have to wait for the other.
    """

    def __init__(self) -> None:
        self.since = [0, 0]  # with a budget, without

    def joins(self, sequence: Sequence, lines: Iterable[Line]) -> None:
        """Count a sequence that begins to run. It is still in one of the lines."""
        heads: tuple[list[int], list[int]] = [], []
        for line in lines:
            if line.is_full:
                continue
            if line.waiting:
                heads[not line.is_timed].append(line.waiting[0].number)
            if line.relegated:
                heads[0].append(line.relegated[0].number)
        self.since = [each + 1 for each in self.since]
        kind = sequence.tier == UNTIMED
        if heads[kind] and sequence.number == min(heads[kind]):
            self.since[kind] = 0
