"""InputsBuilder: from a batch to the index tensors of one forward pass.

The pass is flat: the tokens of all rows lie end to end, N of them, without padding unless the
batch asks for it (`width`, `held`).

    | rows of one token, the shortest past first | row of many + its padding | ... | held slot |
    |<------------ decodes --------------------->|<------ prefills -------------------------->|
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.batch import Batch, Row, Want
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.sampling.sampling import SamplingColumns
from headway.executor.torch.slots import REFUSED_SLOT, Slots

Ints = NDArray[np.int64]
LAST, PROMPT = Want.LAST.value, Want.PROMPT.value  # plain ints, because `&` of flags is slow


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """Rows of one token and of similar lengths: flat tokens begin to end."""

    begin: int
    end: int
    blocks: Tensor  # [rows x blocks of the longest], scratch after a row's last
    masks: dict[int, Tensor]  # by window: [rows, 1, 1, keys], 0 or -inf


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One row of several tokens: flat tokens begin to end."""

    begin: int
    end: int
    keys: int  # how many it attends to
    blocks: Tensor  # the blocks that hold them
    # by window: [end - begin, keys], 0 or -inf; None: causal from position 0
    masks: dict[int, Tensor | None]


@dataclass(frozen=True, slots=True)
class PromptScoring:
    """A row whose prompt is to be scored: log-probabilities of its tokens."""

    row: int
    begin: int  # its first flat token
    next_tokens: Tensor  # [m] the prompt's token after each of its first m
    top_logprobs: int  # how many of the most likely tokens, too


@dataclass(frozen=True, slots=True)
class Inputs:
    """One forward pass over N tokens."""

    tokens: Tensor  # [N] ids
    positions: Tensor  # [N] in their sequences
    cells: Tensor  # [N] of the KV memory, to write to
    decodes: tuple[DecodeRows, ...]
    prefills: tuple[PrefillRow, ...]
    at: Tensor  # [R] flat tokens whose logits are wanted
    sampled: tuple[int, ...]  # [R] the rows they belong to
    draws: SamplingColumns  # [R]
    scorings: tuple[PromptScoring, ...]
    spans: Ints  # [rows, 2] flat tokens of each row, padding left out
    errors: dict[int, str]  # rows that cannot be computed; they run, and their result is dropped


@dataclass(slots=True)
class _FlatTokens:
    """Tokens, positions and cells, while rows are laid end to end."""

    tokens: list[Ints] = field(default_factory=list)
    positions: list[Ints] = field(default_factory=list)
    cells: list[Ints] = field(default_factory=list)
    length: int = 0

    def add(self, tokens: Ints, positions: Ints, cells: Ints) -> None:
        self.tokens.append(tokens)
        self.positions.append(positions)
        self.cells.append(cells)
        self.length += len(tokens)


class InputsBuilder:
    """Builds the inputs of each step from its batch and the tables of its sequences."""

    def __init__(self, slots: Slots, cache: KVCache, vocab: int) -> None:
        self.slots, self.size, self.vocab = slots, cache.block_size, vocab
        self.dtype, self.device = cache.keys[0].dtype, cache.keys[0].device
        self._gathering, self._windows = cache.gathering, cache.windows
        self._seen, self._unseen = cache.keys[0].new_tensor([0.0, -float("inf")]).unbind()

    def build(self, batch: Batch) -> Inputs:
        """The inputs of a batch whose sequences have begun. Adds its blocks to their tables."""
        of, extend = self.slots.of, self.slots.extend
        slots = np.array([of[row.sequence] for row in batch.rows], dtype=np.int64)
        starts = np.array([row.start for row in batch.rows], dtype=np.int64)
        lengths = np.array([len(row.tokens) for row in batch.rows], dtype=np.int64)
        wants = np.array([row.want for row in batch.rows], dtype=np.int64)
        histories, matchers = self.slots.histories, self.slots.matchers
        for slot, row in zip(slots.tolist(), batch.rows, strict=True):
            if row.blocks:
                extend(slot, row.blocks)
            if slot in histories:
                histories[slot].extend(row.start, row.tokens)
            if slot in matchers:
                matchers[slot].extend(row.start, row.tokens)
        flat, spans = _FlatTokens(), np.empty((len(slots), 2), dtype=np.int64)
        alone = (lengths == 1) & (batch.width <= 1)
        single = np.flatnonzero(alone)
        single = single[starts[single].argsort(kind="stable")]
        decodes = self._decodes(batch, single, slots[single], starts[single], flat)
        spans[single, 0] = np.arange(len(single))
        prefills = []
        for i in np.flatnonzero(~alone).tolist():
            spans[i, 0] = flat.length
            prefills.append(self._prefill(batch.rows[i], slots[i], batch.width, flat))
        if batch.width > 1:
            prefills += [self._held_slot(batch.width, flat) for _ in range(batch.held)]
        spans[:, 1] = spans[:, 0] + lengths
        wanted = np.flatnonzero(wants & LAST)
        tokens, errors = self._replace_bad_tokens(np.concatenate(flat.tokens), spans)
        errors |= self.slots.refusals(batch.rows)
        return Inputs(
            tokens=self._tensor(tokens),
            positions=self._tensor(np.concatenate(flat.positions)),
            cells=self._tensor(np.concatenate(flat.cells)),
            decodes=decodes,
            prefills=tuple(prefills),
            at=self._tensor(spans[wanted, 1] - 1),
            sampled=tuple(wanted.tolist()),
            draws=self.slots.draws(slots[wanted], (starts + lengths)[wanted]),
            scorings=tuple(
                self._prompt_scoring(i, batch.rows[i], slots[i], spans[i, 0])
                for i in np.flatnonzero(
                    (wants & PROMPT).astype(bool) & (slots != REFUSED_SLOT)
                ).tolist()
            ),
            spans=spans,
            errors=errors,
        )

    def _decodes(
        self, batch: Batch, rows: Ints, slots: Ints, starts: Ints, flat: _FlatTokens
    ) -> tuple[DecodeRows, ...]:
        """Rows of one token, the shortest past first, in groups. Held slots of width 1 come last.

        The table of a held slot is all scratch, and it attends to as much as the longest row.
        """
        held = batch.held if batch.width == 1 else 0
        count = len(rows) + held
        if not count:
            return ()
        size = self.size
        needs = np.full(count, starts[-1] // size + 1 if len(rows) else 1)  # blocks
        needs[: len(rows)] = starts // size + 1
        lengths = needs * size
        lengths[: len(rows)] = starts + 1
        cells = np.arange(count) % size
        blocks = self.slots.tables[slots, starts // size]
        cells[: len(rows)] = blocks * size + starts % size
        tokens, positions = np.zeros((2, count), dtype=np.int64)
        tokens[: len(rows)] = [batch.rows[i].tokens[0] for i in rows.tolist()]
        positions[: len(rows)] = starts
        flat.add(tokens, positions, cells)
        return tuple(
            DecodeRows(
                begin,
                end,
                self._tensor(self._tables(slots[begin:end], end - begin, needs[end - 1])),
                self._decode_masks(needs[end - 1] * size, lengths[begin:end]),
            )
            for begin, end in self._gathering.groups(needs.tolist())
        )

    def _tables(self, slots: Ints, count: int, width: int) -> Ints:
        """The first `width` blocks of each row of a group, end to end; held slots last, in scratch.

        For all rows of a step at once, the table would be as wide as the longest row.
        """
        own = self.slots.tables[slots, :width].ravel()
        scratch = np.zeros((count - len(slots)) * width, dtype=np.int64)
        return np.concatenate([own, scratch]) if len(scratch) else own

    def _prompt_scoring(self, i: int, row: Row, slot: int, begin: int) -> PromptScoring:
        history = self.slots.histories[slot]
        end = min(row.start + len(row.tokens), history.prompt - 1)
        next_tokens = np.array(history.known[row.start + 1 : end + 1], dtype=np.int64)
        return PromptScoring(
            i, int(begin), self._tensor(next_tokens), history.sampling.prompt_logprobs
        )

    def _decode_masks(self, keys: int, lengths: Ints) -> dict[int, Tensor]:
        """For each window, masks of rows of one query: the last of `lengths` positions."""
        at, seen = np.arange(keys), lengths[:, None, None, None]
        return {
            window: self._mask((at < seen) & (at >= seen - window) if window else at < seen)
            for window in self._windows
        }

    def _prefill(self, row: Row, slot: int, width: int, flat: _FlatTokens) -> PrefillRow:
        """A row of several tokens. Padding after it attends to what its last token attends to."""
        size, own = self.size, len(row.tokens)
        end = row.start + own
        padding = max(0, width - own)
        positions = np.arange(row.start, end)
        table = self.slots.tables[slot, : -(-end // size)]
        begin, idle = flat.length, np.arange(padding)
        flat.add(
            np.concatenate([np.array(row.tokens, dtype=np.int64), np.zeros_like(idle)]),
            np.concatenate([positions, np.full(padding, end - 1)]),
            np.concatenate([table[positions // size] * size + positions % size, idle % size]),
        )
        seen = np.minimum(np.arange(row.start, row.start + own + padding), end - 1)
        masks = {window: self._prefill_mask(end, seen, window) for window in self._windows}
        return PrefillRow(begin, flat.length, end, self._tensor(table.copy()), masks)

    def _prefill_mask(self, keys: int, seen: Ints, window: int) -> Tensor | None:
        """The mask of queries that attend up to positions `seen`, and back to the window's limit.

        None where the causal mask is enough: from position 0, with all keys inside the window.
        """
        window = window if window < keys else 0
        if seen[0] == 0 and not window:
            return None
        at, last = np.arange(keys), seen[:, None]
        return self._mask((at <= last) & (at > last - window) if window else at <= last)

    def _held_slot(self, width: int, flat: _FlatTokens) -> PrefillRow:
        """A held slot of several tokens: the work of a prompt, in the scratch block."""
        idle, begin = np.arange(width), flat.length
        flat.add(np.zeros_like(idle), idle, idle % self.size)
        table = np.zeros(-(-width // self.size), dtype=np.int64)
        masks = {window: self._prefill_mask(width, idle, window) for window in self._windows}
        return PrefillRow(begin, flat.length, width, self._tensor(table), masks)

    def _replace_bad_tokens(self, tokens: Ints, spans: Ints) -> tuple[Ints, dict[int, str]]:
        """Tokens with invalid ids replaced by 0, and an error for each such row.

        An invalid id must not fail the step for the other rows.
        """
        if tokens.min() >= 0 and tokens.max() < self.vocab:
            return tokens, {}
        bad = (tokens < 0) | (tokens >= self.vocab)
        errors = {
            i: f"token {int(mine[theirs].item(0))} is outside the vocabulary of {self.vocab}"
            for i, (begin, end) in enumerate(spans.tolist())
            if (theirs := bad[begin:end]).any()
            for mine in [tokens[begin:end]]
        }
        return np.where(bad, 0, tokens), errors

    def _mask(self, visible: NDArray[np.bool_]) -> Tensor:
        return torch.where(self._tensor(visible), self._seen, self._unseen)

    def _tensor(self, array: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
        return torch.from_numpy(array).to(self.device)
