"""Prompts cut from a text, of which no two begin alike (Prompts)."""

from collections.abc import Sequence
from random import Random

from headway.costing.request_spec import RequestSpec
from headway.errors import SettingError


class Prompts:
    """Prompts cut from a text at seeded places. No two drawn prompts begin with the same block.

    So the prefix cache gains nothing by accident: prompts can share a prefix only if they share the
    first block.
    """

    def __init__(self, text: Sequence[int], block_size: int, seed: int) -> None:
        self.text, self.block_size, self.seed = text, block_size, seed
        self._seen: set[tuple[int, ...]] = set()
        self._draws: dict[str, Random] = {}

    def draw(self, lane: str, length: int) -> tuple[int, ...]:
        """Draw a prompt of `length` tokens whose first block no other prompt has.

        Raises SettingError if the text is too short for that.
        """
        last = len(self.text) - max(length, self.block_size)
        draw = self._draws.setdefault(lane, Random(f"{self.seed} prompts {lane}"))
        for _ in range(1_000 if last >= 0 else 0):
            at = draw.randint(0, last)
            first = tuple(self.text[at : at + self.block_size])
            if first not in self._seen:
                self._seen.add(first)
                return tuple(self.text[at : at + length])
        raise self._too_short(length)

    def shared(self, spec: RequestSpec) -> tuple[int, ...]:
        """A prompt built from the spec's block ids. The same id always gives the same tokens."""
        words = list[int]()
        for block in spec.blocks[: -(-spec.prompt // spec.block)]:
            last = len(self.text) - spec.block
            if last < 0:
                raise self._too_short(spec.block)
            at = Random(f"{self.seed} block {block}").randint(0, last)
            words += self.text[at : at + spec.block]
        short = spec.prompt - len(words)
        rest = self.draw(spec.lane, short) if short > 0 else ()
        return (*words[: spec.prompt], *rest)

    def _too_short(self, length: int) -> SettingError:
        return SettingError(
            f"a text of {len(self.text)} tokens is too short for {len(self._seen) + 1} prompts "
            f"of up to {length} tokens that do not begin alike"
        )
