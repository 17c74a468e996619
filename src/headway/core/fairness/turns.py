"""How often the oldest sequence has been passed over (Turns): by age, each has a turn to begin."""

from collections.abc import Iterable

from headway.core.kv.blocks import BlockPool
from headway.core.lane import Line
from headway.core.sequences.sequence import UNTIMED, Sequence


class Turns:
    """How many sequences have begun to run since the oldest waiting one did. Lanes with and without
    a budget are counted apart, because one kind may have to wait for the other.
    """

    def __init__(self) -> None:
        self.since = [0, 0]  # with a budget, without

    def joins(self, sequence: Sequence, lines: Iterable[Line], pool: BlockPool) -> None:
        """Count a sequence that begins to run. It is still in one of the lines. A head that its
        lane keeps from joining is not the oldest: it could not use its turn."""
        heads: tuple[list[int], list[int]] = [], []
        for line in lines:
            if line.is_full:
                continue
            held = pool.blocks_of_lane[line.lane.name]
            for part, kind in ((line.waiting, not line.is_timed), (line.relegated, False)):
                for head in part[:1]:
                    if head is sequence or not line.lacks_blocks(head, held, pool.block_size):
                        heads[kind].append(head.number)
        self.since = [each + 1 for each in self.since]
        kind = sequence.tier == UNTIMED
        if heads[kind] and sequence.number == min(heads[kind]):
            self.since[kind] = 0
