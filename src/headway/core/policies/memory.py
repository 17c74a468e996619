"""Will the KV memory suffice? A Memory answers, for each request that would join."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.view import View
from headway.errors import SettingError


class Memory(Protocol):
    """Whether those who run leave blocks for one more, later on as well as now."""

    def suffices(self, view: View, others: Seq[Sequence], joining: Sequence) -> bool:
        """Whether it may join. others: who run and keep their blocks beside it."""
        ...


@dataclass(frozen=True, slots=True)
class Now:
    """It may join if its blocks are free now. Who grows later may have to preempt others."""

    def suffices(self, view: View, others: Seq[Sequence], joining: Sequence) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Ahead:
    """It may join if the blocks will suffice at every future moment, as far as lengths are known.

    Tokens grow by one a step, and who ends gives its blocks back. So memory is fullest just before
    one of them ends. In order of remaining length, longest first, that is

        max over i of  (tokens of the first i  +  i x remaining length of the ith)

    (Past-Future, LightLLM 2025). What waits in the prefix cache counts as free. A block that
    several use counts once: what their tables have beyond the blocks in use is divided among all.
    """

    share: float = 0.6  # of answers that are no longer than what is counted on

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SettingError(f"a share of answers is more than 0 and at most 1: {self.share}")

    def suffices(self, view: View, others: Seq[Sequence], joining: Sequence) -> bool:
        if not others:
            return True  # else it could never run
        end, share, size = view.estimates.lengths.end, self.share, view.block_size
        used = view.num_blocks - view.free_blocks
        twice = max(0, sum([len(s.blocks) for s in others]) - used) * size // len(others)
        holders = [(end(s, share) - (now := len(s.tokens)), now - twice) for s in others]
        holders.append((end(joining, share) - (now := len(joining.tokens)), now))
        holders.sort(reverse=True)
        held = peak = 0
        for count, (left, now) in enumerate(holders, 1):
            held += now
            if (most := held + count * left) > peak:
                peak = most
        # Each has half a block more than its tokens, on average.
        return peak + len(holders) * size // 2 <= view.num_blocks * size


def has_future(
    memory: Memory,
    view: View,
    free: int,
    holders: Iterable[Sequence],
    joining: Sequence,
    across: bool,
) -> bool:
    """Whether memory suffices for it later on too, beside those who keep their blocks. view: before
    the step; free: blocks at present, since some may have joined already. across: it may take the
    blocks of those behind it."""
    if isinstance(memory, Now):
        return True
    others = [each for each in holders if not across or each.tier <= joining.tier]
    return memory.suffices(view._replace(free_blocks=free), others, joining)
