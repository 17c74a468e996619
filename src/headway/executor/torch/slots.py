"""Slots: the executor's state of each sequence, from its first row until its end."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.core.batch import Begun, Row
from headway.errors import SettingError, TokenizerError, first_line
from headway.executor.grammars.grammar import GrammarCompiler, Matcher
from headway.executor.torch.memory.block_tables import BlockTables
from headway.executor.torch.sampling.noise import choice_seed
from headway.executor.torch.sampling.penalties import History
from headway.executor.torch.sampling.sampling import SamplingColumns, plain_columns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
REFUSED_SLOT = 0  # the slot of sequences that could not begin
COULD_NOT_BEGIN = "the request could not begin: "


class Slots:
    """A few tables with one row per sequence, so that a step reads columns, not objects.

    slot of  tables: blocks     prompts   temperature ...
    (refused)| 0 0 0 0 0 |        0       0.0
    7 -> 1   | 4 9 2 0 0 |       10       0.0
    9 -> 2   | 5 0 0 0 0 |        3       0.7
    (free)   | . . . . . |

    No answer depends on the sequence's slot. All sequences that could not begin share the refused
    slot; their rows are computed in the scratch block.
    """

    def __init__(
        self,
        blocks_per_sequence: int,
        grammars: GrammarCompiler,
        device: torch.device,
        poolings: Collection[str] = (),
        rows: int = 64,
    ) -> None:
        """poolings: the poolings that the model supports."""
        self._grammars, self.device, self._poolings = grammars, device, poolings
        self.matchers: dict[int, Matcher] = {}  # slot -> its grammar's state, if it has a grammar
        self._refused: dict[int, str] = {}  # sequence -> why it could not begin
        self.histories: dict[int, History] = {}  # slot -> its tokens, if the sampling reads them
        self.of: dict[int, int] = {}  # sequence -> slot
        self.tables = BlockTables(rows, blocks_per_sequence, device)
        self._free = list(range(rows - 1, REFUSED_SLOT, -1))  # the lowest first: tables stay dense
        self.prompts: Ints = np.zeros(rows, dtype=np.int64)
        self.temperature: Floats = np.zeros(rows)
        self.top_k: Ints = np.zeros(rows, dtype=np.int64)
        self.top_p: Floats = np.ones(rows)
        self.min_p: Floats = np.zeros(rows)
        self.seeds: Ints = np.zeros(rows, dtype=np.int64)
        self.min_tokens: Ints = np.zeros(rows, dtype=np.int64)
        self.logprobs: Ints = np.full(rows, -1, dtype=np.int64)
        self._stops: list[tuple[int, ...]] = [()] * rows
        self._particular = set[int]()  # slots that need more than the plain likeliest token

    @property
    def count(self) -> int:
        """The number of slots, free ones included."""
        return len(self._stops)

    def begin(self, begun: Begun) -> None:
        """Give a sequence a slot and store its sampling there. It has no blocks yet.

        If that fails, the sequence gets the refused slot and its rows get errors. Other rows are
        not affected.
        """
        assert begun.sequence not in self.of, "begun twice"
        try:
            self.of[begun.sequence] = self._fill(begun)
        except Exception as error:  # of any kind: other rows share the step
            self.of[begun.sequence] = REFUSED_SLOT
            known = isinstance(error, SettingError | TokenizerError)
            self._refused[begun.sequence] = (
                str(error) if known else COULD_NOT_BEGIN + first_line(error)
            )

    def _fill(self, begun: Begun) -> int:
        """Fill a slot. It leaves the free list last, when nothing can fail any more."""
        sampling = begun.sampling
        if begun.pooling and begun.pooling not in self._poolings:
            raise SettingError(f"the model has no pooling {begun.pooling!r}")
        weighs = sampling.weighs_tokens or sampling.logit_bias
        history = History(begun, self._grammars.vocab, self.device) if weighs else None
        matcher = self._grammars.begin(begun) if sampling.grammar else None
        if not self._free:
            self._grow()
        slot = self._free[-1]
        self.tables.clear(slot)
        self.prompts[slot] = begun.prompt
        self.temperature[slot] = sampling.temperature
        self.top_k[slot] = sampling.top_k
        self.top_p[slot] = sampling.top_p
        self.min_p[slot] = sampling.min_p
        self.seeds[slot] = choice_seed(sampling.seed, sampling.choice)
        self.min_tokens[slot] = sampling.min_tokens if sampling.stop_tokens else 0
        self.logprobs[slot] = sampling.logprobs
        self._stops[slot] = tuple(sorted(sampling.stop_tokens))
        reads = sampling.temperature or sampling.logprobs >= 0 or self.min_tokens[slot]
        if reads or history or matcher:
            self._particular.add(slot)
        if history:
            self.histories[slot] = history
        if matcher:
            self.matchers[slot] = matcher
        return self._free.pop()

    def end(self, sequence: int) -> None:
        """Drop a sequence's state and free its slot."""
        slot = self.of.pop(sequence)
        if slot == REFUSED_SLOT:
            del self._refused[sequence]
            return
        self._free.append(slot)
        self._particular.discard(slot)
        self.histories.pop(slot, None)
        self.matchers.pop(slot, None)

    def extend(self, slot: int, blocks: tuple[int, ...]) -> None:
        """Append blocks to the block table of a slot."""
        if slot != REFUSED_SLOT:
            self.tables.extend(slot, blocks)

    def refusals(self, rows: Sequence[Row]) -> dict[int, str]:
        """Row index -> why the row cannot be answered."""
        if not self.matchers and not self._refused:
            return {}
        broken = {slot: each.error for slot, each in self.matchers.items() if each.error}
        why = [self._refused.get(row.sequence) or broken.get(self.of[row.sequence]) for row in rows]
        return {i: each for i, each in enumerate(why) if each}

    def draws(self, slots: Ints, positions: Ints) -> SamplingColumns:
        """How to sample the tokens at these positions of the sequences in these slots."""
        if not self._particular:
            return plain_columns(len(slots))
        early = np.flatnonzero(positions - self.prompts[slots] < self.min_tokens[slots])
        return SamplingColumns(
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
        """Double the rows. If memory runs out, nothing has changed."""
        rows = self.count
        grown = {name: np.concatenate([column, column]) for name, column in self._columns()}
        self.tables.grow()
        for name, column in grown.items():
            setattr(self, name, column)
        self._stops += [()] * rows
        self._free += range(2 * rows - 1, rows - 1, -1)

    def _columns(self) -> list[tuple[str, NDArray[Any]]]:
        names = "prompts temperature top_k top_p min_p seeds min_tokens logprobs"
        return [(name, getattr(self, name)) for name in names.split()]
