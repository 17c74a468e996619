"""What the executor keeps of each sequence, from its first row until it has ended."""

import numpy as np
import torch
from numpy.typing import NDArray

from headway.core.batch import Begun
from headway.errors import SettingError, TokenizerError
from headway.executor.grammar import Grammars, Matcher
from headway.executor.noise import stream
from headway.executor.penalties import History
from headway.executor.sampling import Draws

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Slots:
    """A row per sequence in a few tables, so that a step reads columns and not objects.

    slot of  tables [slots, width]: blocks, 0 behind the last   lengths   temperature ...
    7 -> 0   | 4 9 2 0 0 |                                       10       0.0
    9 -> 1   | 5 0 0 0 0 |                                        3       0.7
    (free)   | . . . . . |

    Slots are an economy of this part alone: nothing in an answer depends on them.
    """

    def __init__(
        self, blocks_per_sequence: int, grammars: Grammars, device: torch.device, rows: int = 64
    ) -> None:
        self._grammars, self._device = grammars, device
        self.matchers: dict[int, Matcher] = {}  # slot -> its grammar, where the sampling has one
        self._refused: dict[int, str] = {}  # slot -> why its grammar cannot be obeyed
        self.histories: dict[int, History] = {}  # slot -> tokens, where the sampling reads them
        self.of: dict[int, int] = {}  # sequence -> slot
        self.tables: Ints = np.zeros((rows, blocks_per_sequence), dtype=np.int64)
        self._counts = [0] * rows  # blocks in each table
        self._free = list(range(rows - 1, -1, -1))  # the lowest first, so tables stay dense
        self.prompts: Ints = np.zeros(rows, dtype=np.int64)
        self.temperature: Floats = np.zeros(rows)
        self.top_k: Ints = np.zeros(rows, dtype=np.int64)
        self.top_p: Floats = np.ones(rows)
        self.min_p: Floats = np.zeros(rows)
        self.seeds: Ints = np.zeros(rows, dtype=np.int64)
        self.min_tokens: Ints = np.zeros(rows, dtype=np.int64)
        self.logprobs: Ints = np.full(rows, -1, dtype=np.int64)
        self._stops: list[tuple[int, ...]] = [()] * rows

    def begin(self, begun: Begun) -> None:
        """Keep what a sequence's sampling reads. It has no blocks yet."""
        assert begun.sequence not in self.of, "begun twice"
        if not self._free:
            self._grow()
        slot = self.of[begun.sequence] = self._free.pop()
        self.tables[slot] = 0
        self._counts[slot] = 0
        asked = begun.sampling
        self.prompts[slot] = begun.prompt
        self.temperature[slot] = asked.temperature
        self.top_k[slot] = asked.top_k
        self.top_p[slot] = asked.top_p
        self.min_p[slot] = asked.min_p
        self.seeds[slot] = stream(asked.seed, asked.choice)
        self.min_tokens[slot] = asked.min_tokens if asked.stop_tokens else 0
        self.logprobs[slot] = asked.logprobs
        self._stops[slot] = tuple(sorted(asked.stop_tokens))
        if asked.weighs_tokens or asked.logit_bias:
            self.histories[slot] = History(begun, self._grammars.vocab, self._device)
        if asked.grammar:
            try:
                self.matchers[slot] = self._grammars.begin(begun)
            except (SettingError, TokenizerError) as error:  # of this row; the others have theirs
                self._refused[slot] = str(error)

    def end(self, sequence: int) -> None:
        slot = self.of.pop(sequence)
        self._free.append(slot)
        self.histories.pop(slot, None)
        self.matchers.pop(slot, None)
        self._refused.pop(slot, None)

    def extend(self, slot: int, blocks: tuple[int, ...]) -> None:
        """Add blocks to a sequence's table."""
        begin = self._counts[slot]
        end = self._counts[slot] = begin + len(blocks)
        assert end <= self.tables.shape[1], "a table holds a context's blocks and no more"
        self.tables[slot, begin:end] = blocks

    def refusals(self, slots: list[int]) -> dict[int, str]:
        """By index: why these slots' grammars cannot be obeyed."""
        if not self.matchers and not self._refused:
            return {}
        broken = {slot: each.error for slot, each in self.matchers.items() if each.error}
        broken |= self._refused
        return {i: broken[slot] for i, slot in enumerate(slots) if slot in broken}

    def draws(self, slots: Ints, positions: Ints) -> Draws:
        """How the tokens at these positions of these slots' sequences are to be sampled."""
        early = np.flatnonzero(positions - self.prompts[slots] < self.min_tokens[slots])
        return Draws(
            temperature=self.temperature[slots],
            top_k=self.top_k[slots],
            top_p=self.top_p[slots],
            min_p=self.min_p[slots],
            seeds=self.seeds[slots],
            positions=positions,
            banned={int(i): self._stops[slots[i]] for i in early},
            logprobs=self.logprobs[slots],
            histories={
                i: self.histories[slot]
                for i, slot in enumerate(slots.tolist() if self.histories else ())
                if slot in self.histories
            },
            matchers={
                i: self.matchers[slot]
                for i, slot in enumerate(slots.tolist() if self.matchers else ())
                if slot in self.matchers and not self.matchers[slot].error
            },
        )

    def _grow(self) -> None:
        rows = len(self._counts)
        self.tables = np.concatenate([self.tables, np.zeros_like(self.tables)])
        self._counts += [0] * rows
        self._stops += [()] * rows
        for name in ("prompts", "temperature", "top_k", "top_p", "min_p", "seeds", "min_tokens"):
            setattr(self, name, np.tile(getattr(self, name), 2))
        self.logprobs = np.tile(self.logprobs, 2)
        self._free += range(2 * rows - 1, rows - 1, -1)
