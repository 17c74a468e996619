"""How an executor reads keys and values for rows of one position (Gathering).

An executor without a paged attention kernel copies the blocks of several rows into one rectangle,
as wide as the longest of them, and attends to it once. So what a row costs depends on its
neighbours: the more their lengths differ, the more padding is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gathering:
    """Rows in order of length, in groups. A group has at most `at_once` blocks, padding included,
    or a single row.

        row 0 | ##...      |  at_once = 16: 15 blocks are read for rows 0 to 2,
        row 1 | ###..      |
        row 2 | #####      |
        row 3 | ########## |  and 10 for row 3
    """

    block: int = 1  # tokens
    at_once: int = 0  # blocks; 0: there are no groups, and each row reads only its own keys

    def groups(self, needs: Sequence[int]) -> list[tuple[int, int]]:
        """The first row of each group and the row after its last.

        needs: blocks of each row, ascending.
        """
        cuts = [0]
        for i, need in enumerate(needs):
            if i > cuts[-1] and (i + 1 - cuts[-1]) * need > self.at_once:
                cuts.append(i)
        return list(zip(cuts, [*cuts[1:], len(needs)], strict=True))

    def reads(self, lengths: Sequence[int]) -> int:
        """How many keys are read for rows that have these numbers of keys, in any order."""
        if not self.at_once or not lengths:
            return sum(lengths)
        needs = sorted([-(-length // self.block) for length in lengths])
        groups = self.groups(needs)
        return self.block * sum([(end - begin) * needs[end - 1] for begin, end in groups])


UNPADDED = Gathering()
