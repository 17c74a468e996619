"""Will the KV memory suffice? A Memory answers, for those who would join."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite, isqrt
from typing import Protocol

from headway.core.cost.lengths import Lengths
from headway.core.sequence import TIMED, Sequence
from headway.core.view import View
from headway.errors import SettingError


class Memory(Protocol):
    """Whether those who run leave blocks for one more, later on as well as now."""

    def foresees(self, joining: Sequence) -> bool:
        """Whether it needs a forecast; if not, it may join if its blocks are free."""
        ...

    def forecast(
        self, view: View, beside: Seq[Sequence], staying: Seq[Sequence] = ()
    ) -> "Forecast | None":
        """What memory will have for one more; None: whoever has blocks now may join. beside: who
        run and keep their blocks until they end; staying: others who run, and are replaced."""
        ...


@dataclass(frozen=True, slots=True)
class Now:
    """It may join if its blocks are free now. Who grows later may have to preempt others."""

    def foresees(self, joining: Sequence) -> bool:
        return False

    def forecast(
        self, view: View, beside: Seq[Sequence], staying: Seq[Sequence] = ()
    ) -> "Forecast | None":
        return None


@dataclass(frozen=True, slots=True)
class Ahead:
    """It may join if the blocks will suffice at every future moment, as far as lengths are known.

    Tokens grow by one a step, and who ends gives its blocks back. So memory is fullest just before
    one of them ends. In order of remaining length, longest first, that is

        max over i of  (tokens of the first i  +  i x remaining length of the ith)

    (Past-Future, LightLLM 2025). What waits in the prefix cache counts as free, and a block that
    several use counts once.

    Those in time are not expected to leave, if a request of a later tier would join: others come
    when they end. They keep what they have, and as much more as a Poisson number of them varies by,
    at most as much again.
    """

    share: float = 0.6  # of answers that are no longer than what is counted on
    timed: bool = True  # holds for those in time, too; otherwise, these may join as with Now
    spread: float = 3.0  # standard deviations of what those who stay have

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SettingError(f"a share of answers is more than 0 and at most 1: {self.share}")
        if not isfinite(self.spread) or self.spread < 0:
            raise SettingError(f"a spread is a number, 0 or more: {self.spread}")

    def foresees(self, joining: Sequence) -> bool:
        return self.timed or joining.tier != TIMED

    def forecast(
        self, view: View, beside: Seq[Sequence], staying: Seq[Sequence] = ()
    ) -> "Forecast | None":
        if not beside:
            return None  # else it could never run
        lengths, share, size = view.estimates.lengths, self.share, view.block_size
        shared = frozenset(view.shared)
        stay = unshared_tokens(staying, shared, size)
        more = int(self.spread * isqrt(sum([each * each for each in stay])))
        # Each has half a block more than its tokens, on average.
        halves = (len(beside) + len(stay) + 1) * size // 2
        kept = sum(stay) + min(sum(stay), more) + len(shared) * size + halves
        left, held = lengths.likely_left(beside, share), unshared_tokens(beside, shared, size)
        holders = list(zip(left, held, strict=True))
        return Forecast(lengths, share, holders, view.num_blocks * size - kept)


def unshared_tokens(
    sequences: Iterable[Sequence], shared: Collection[int], block_size: int
) -> list[int]:
    """Of each, its tokens outside of blocks that several use: these are the first of its table."""
    if not shared:
        return [len(sequence.tokens) for sequence in sequences]

    def is_own(block: int) -> bool:
        return block not in shared

    used = [(bisect_left(s.blocks, True, key=is_own), s) for s in sequences]
    return [max(0, len(s.tokens) - count * block_size) for count, s in used]


FILLER_AHEAD = Ahead(timed=False)
PAUSE = 16  # steps of a lull, at most


class Lull:
    """Memory will suffice for nobody who waits, and nobody who waits or runs has changed since.

    Those who run come nearer to their ends together, so `Forecast.steps_to_room` says how long that
    stays so. But whoever misses a step will have less than foreseen. So a lull ends after PAUSE.
    """

    def __init__(self) -> None:
        self._moves, self._until = -1, 0

    def begin(self, moves: int, view: View, steps: int) -> None:
        """In this step nobody could join, nor in so many from it on. moves: of all lines, before
        it."""
        self._moves, self._until = moves, view.step + min(PAUSE, steps)

    def lasts(self, moves: int, view: View) -> bool:
        """Whether nobody needs to be asked in this step. moves: of all lines."""
        return moves == self._moves and view.step < self._until


def moves(view: View) -> int:
    """How often somebody has come, joined, moved or left, in all lanes."""
    return sum([line.moves for line in view.lines])


class Forecast:
    """How full memory will be with one more, whoever that is."""

    def __init__(
        self, lengths: Lengths, share: float, holders: list[tuple[int, int]], room: int
    ) -> None:
        """holders: of each who runs, the tokens that are left and those it has. room: for their
        tokens and those of one more."""
        self._lengths, self._share, self._room = lengths, share, room
        holders.sort(reverse=True)
        self._order = [-left for left, _ in holders]
        self._held = [0, *accumulate([now for _, now in holders])]
        fullest = [
            held + count * left
            for count, ((left, _), held) in enumerate(zip(holders, self._held[1:], strict=True), 1)
        ]
        # Just before one ends that is later than it, or sooner: then the two are there together.
        self._later = [0, *accumulate(fullest, max)]
        sooner = [most + left for most, (left, _) in zip(fullest, holders, strict=True)]
        self._sooner = [*accumulate(reversed(sooner), max, initial=0)]
        self._sooner.reverse()

    def steps_to_room(self, joining: Sequence, found: int) -> int:
        """0: memory will suffice if it joins. Else in how many steps that may be so, if it waits.
        found: of its tokens, those whose blocks others use already."""
        now = len(joining.tokens) - found
        (left,) = self._lengths.likely_left((joining,), self._share)
        place = bisect_right(self._order, -left)
        own = self._held[place] + now + (place + 1) * left
        if max(own, self._later[place]) <= self._room:
            # With each step that it waits, it will have a token less when one of the others ends.
            return max(0, now + self._sooner[place] - self._room)
        # Too many end later than it: one fewer, once another has less left.
        return 1 - self._order[place - 1] - left if place else PAUSE
