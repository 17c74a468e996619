"""Will the KV memory suffice? A Memory answers, for those who would join."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import isqrt
from typing import Protocol

from headway.core.cost.lengths import Lengths
from headway.core.sequence import TIMED, Sequence
from headway.core.view import View
from headway.errors import SettingError


class Memory(Protocol):
    """Whether those who run leave blocks for one more, later on as well as now."""

    def forecast(self, view: View, others: Iterable[Sequence], tier: int) -> "Forecast | None":
        """What memory will have for each request of this tier that would join; None: it may join if
        its blocks are free. others: who run and keep their blocks beside it."""
        ...


@dataclass(frozen=True, slots=True)
class Now:
    """It may join if its blocks are free now. Who grows later may have to preempt others."""

    def forecast(self, view: View, others: Iterable[Sequence], tier: int) -> "Forecast | None":
        return None


@dataclass(frozen=True, slots=True)
class Ahead:
    """It may join if the blocks will suffice at every future moment, as far as lengths are known.

    Tokens grow by one a step, and who ends gives its blocks back. So memory is fullest just before
    one of them ends. In order of remaining length, longest first, that is

        max over i of  (tokens of the first i  +  i x remaining length of the ith)

    (Past-Future, LightLLM 2025). What waits in the prefix cache counts as free. A block that
    several use counts once: what their tables have beyond the blocks in use is divided among all.

    Who goes before it is not expected to leave: others come when they end. They keep what they
    have, and as much more as a Poisson number of them varies by.
    """

    share: float = 0.6  # of answers that are no longer than what is counted on
    timed: bool = True  # holds for those in time, too; otherwise, these may join as with Now
    spread: float = 3.0  # standard deviations of what those who go before it have

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SettingError(f"a share of answers is more than 0 and at most 1: {self.share}")
        if self.spread < 0:
            raise SettingError(f"a spread is 0 or more: {self.spread}")

    def forecast(self, view: View, others: Iterable[Sequence], tier: int) -> "Forecast | None":
        if tier == TIMED and not self.timed:
            return None
        found = list(others)
        beside = [each for each in found if each.tier >= tier]
        if not beside:
            return None  # else it could never run
        lengths, share, size = view.estimates.lengths, self.share, view.block_size
        used = view.num_blocks - view.free_blocks
        twice = max(0, sum([len(s.blocks) for s in found]) - used) * size // len(found)
        earlier = [len(s.tokens) - twice for s in found if s.tier < tier]
        kept = sum(earlier) + int(self.spread * isqrt(sum([each * each for each in earlier])))
        # Each has half a block more than its tokens, on average.
        room = view.num_blocks * size - (len(found) + 1) * size // 2 - kept
        end = lengths.likely_end
        ends = [(end(s, share) - (now := len(s.tokens)), now - twice) for s in beside]
        return Forecast(lengths, share, ends, room)


FILLER_AHEAD = Ahead(timed=False)


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

    def has_room(self, joining: Sequence) -> bool:
        """Whether memory will suffice if it joins."""
        now = len(joining.tokens)
        left = self._lengths.likely_end(joining, self._share) - now
        place = bisect_right(self._order, -left)
        own = self._held[place] + now + (place + 1) * left
        return max(own, self._later[place], now + self._sooner[place]) <= self._room
