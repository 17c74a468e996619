"""What is read for rows of one position: keys and values in whole blocks, and padding among them.

An executor without a kernel that walks tables of blocks copies the blocks of several rows into one
rectangle, as wide as the longest of them, and attends to it once. What such a row costs depends
on its neighbours, and the sum of the rows' own lengths falls short of it, the more they differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gathering:
    """How an executor does it: rows in order of length, as many at once as do not exceed a number
    of blocks, all padded to the last.

        row 0 | ##...      |  at_once = 16: 15 blocks are read for rows 0 to 2,
        row 1 | ###..      |
        row 2 | #####      |
        row 3 | ########## |  and 10 for row 3
    """

    block: int = 1  # tokens
    at_once: int = 0  # blocks; 0: there is no padding, and no more is read than a row has

    def groups(self, needs: Sequence[int]) -> list[tuple[int, int]]:
        """Of rows that need so many blocks, ascending: each from which row on, and up to which."""
        cuts = [0]
        for i, need in enumerate(needs):
            if i > cuts[-1] and (i + 1 - cuts[-1]) * need > self.at_once:
                cuts.append(i)
        return list(zip(cuts, [*cuts[1:], len(needs)], strict=True))

    def keys(self, lengths: Sequence[int]) -> int:
        """That are read for rows of so many tokens, in any order."""
        if not self.at_once or not lengths:
            return sum(lengths)
        needs = sorted([-(-length // self.block) for length in lengths])
        groups = self.groups(needs)
        return self.block * sum([(end - begin) * needs[end - 1] for begin, end in groups])


UNPADDED = Gathering()
