"""Will the KV memory suffice? A Memory answers, for sequences that would join."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite, isqrt
from typing import Protocol

from headway.core.cost.lengths import Lengths
from headway.core.sequences.sequence import TIMED, Sequence
from headway.core.view import View
from headway.errors import SettingError


class Memory(Protocol):
    """Whether the running sequences leave blocks for one more, later on as well as now."""

    def foresees(self, joining: Sequence) -> bool:
        """Whether the sequence needs a forecast; if not, it may join if its blocks are free."""
        ...

    def forecast(
        self, view: View, beside: Seq[Sequence], staying: Seq[Sequence] = ()
    ) -> "Forecast | None":
        """What memory will have for one more sequence; None: one whose blocks are free now may
        join. beside: running sequences that keep their blocks until they end. staying: other
        running ones, which others replace when they end."""
        ...


@dataclass(frozen=True, slots=True)
class Now:
    """Let a sequence join if its blocks are free now. If it grows, others may be preempted."""

    def foresees(self, joining: Sequence) -> bool:
        return False

    def forecast(
        self, view: View, beside: Seq[Sequence], staying: Seq[Sequence] = ()
    ) -> "Forecast | None":
        return None


@dataclass(frozen=True, slots=True)
class Ahead:
    """Let a sequence join if the blocks will suffice at every future moment, as far as lengths are
    known.

    Each sequence grows by a token a step, and gives its blocks back when it ends. So memory is
    fullest just before one ends. In order of remaining length, longest first, that peak is

        max over i of  (tokens of the first i  +  i x remaining length of the ith)

    (Past-Future, LightLLM 2025). Cached blocks that no sequence uses count as free, and a block
    that several use counts once.

    If a request of a later tier would join, sequences in time are not expected to leave: others
    come when they end. They keep what they have, and `spread` standard deviations of a Poisson
    number of them, at most as much again.
    """

    share: float = 0.6  # the quantile of answer lengths that is counted on
    timed: bool = True  # holds for sequences in time, too; otherwise, these may join as with Now
    spread: float = 3.0  # standard deviations of the tokens of those that stay

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
    """Each sequence's tokens outside of the blocks that several use, which come first in its
    table."""
    if not shared:
        return [len(sequence.tokens) for sequence in sequences]

    def is_own(block: int) -> bool:
        return block not in shared

    used = [(bisect_left(s.blocks, True, key=is_own), s) for s in sequences]
    return [len(s.tokens) - count * block_size for count, s in used]


FILLER_AHEAD = Ahead(timed=False)
PAUSE = 16  # steps of a lull, at most


class Lull:
    """A time in which memory suffices for no waiting sequence, and none comes, moves or leaves.

    The running sequences approach their ends together, so `Forecast.steps_to_room` says how long
    a lull lasts. A sequence that misses a step falls behind that forecast, and one that runs may
    publish blocks of a prompt that waits. So a lull ends after PAUSE steps at the latest.
    """

    def __init__(self) -> None:
        self._moves, self._free, self._until = -1, 0, 0

    def begin(self, moves: int, view: View, free: int, steps: int) -> None:
        """Begin a lull: no sequence can join in this step, nor in so many from it on. moves: of all
        lines, before this step. free: blocks that the step leaves free, too few for any."""
        self._moves, self._free, self._until = moves, free, view.step + min(PAUSE, steps)

    def lasts(self, moves: int, view: View) -> bool:
        """Whether no sequence needs to be tried in this step. moves: of all lines."""
        is_same = moves == self._moves and view.free_blocks <= self._free
        return is_same and view.step < self._until


def moves(view: View) -> int:
    """How often a sequence has come, joined, moved or left, in all lanes."""
    return sum([line.moves for line in view.lines])


class Forecast:
    """How full memory will be with one more sequence, whichever it is."""

    def __init__(
        self, lengths: Lengths, share: float, holders: list[tuple[int, int]], room: int
    ) -> None:
        """holders: for each running sequence, its tokens to come and its present ones. room: tokens
        that memory has for them and for one more sequence."""
        self._lengths, self._share, self._room = lengths, share, room
        holders.sort(reverse=True)
        self._order = [-left for left, _ in holders]
        self._held = [0, *accumulate([now for _, now in holders])]
        fullest = [
            held + count * left
            for count, ((left, _), held) in enumerate(zip(holders, self._held[1:], strict=True), 1)
        ]
        # The peaks just before a holder ends: later than the new one, which is gone by then, or
        # sooner, with the tokens by which the new one has grown.
        self._later = [0, *accumulate(fullest, max)]
        sooner = [most + left for most, (left, _) in zip(fullest, holders, strict=True)]
        self._sooner = [*accumulate(reversed(sooner), max, initial=0)]
        self._sooner.reverse()

    def steps_to_room(self, joining: Sequence, found: int) -> int:
        """0 if memory will suffice when the sequence joins now; else the steps after which it may.
        found: the sequence's tokens in blocks that others use already."""
        now = len(joining.tokens) - found
        (left,) = self._lengths.likely_left((joining,), self._share)
        place = bisect_right(self._order, -left)
        own = self._held[place] + now + (place + 1) * left
        if max(own, self._later[place]) <= self._room:
            # With each step that it waits, it will have a token less when another one ends.
            return max(0, now + self._sooner[place] - self._room)
        # Too many end later than it does: one fewer, once another has less left than it.
        return 1 - self._order[place - 1] - left if place else PAUSE
