"""InputsBuilder: turns a batch into the index tensors of one forward pass.

The pass is flat: the N tokens of all rows are laid end to end, without padding unless the
batch asks for it (`width`, `held`).

    | rows of one token, the shortest past first | row of many + its padding | ... | held slot |
    |<------------ decodes --------------------->|<------ prefills -------------------------->|
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headway.core.batch import UNKNOWN, Batch, Row, Want
from headway.executor.torch.attention.attention import Attention, StepAttention
from headway.executor.torch.flat_tokens import FlatTokens, joined
from headway.executor.torch.last_tokens import LastTokens
from headway.executor.torch.memory.transfer import send, send_one
from headway.executor.torch.sampling.sampling import SamplingColumns
from headway.executor.torch.slots import REFUSED_SLOT, Slots

Ints = NDArray[np.int64]
LAST, PROMPT = Want.LAST.value, Want.PROMPT.value  # plain ints, because `&` of flags is slow


@dataclass(frozen=True, slots=True)
class PromptScoring:
    """A row whose prompt is scored: the log-probabilities of its tokens are wanted."""

    row: int
    begin: int  # its first flat token
    next_tokens: Tensor  # [m] the prompt's token after each of the row's first m tokens
    top_logprobs: int  # how many of the likeliest tokens to score as well


@dataclass(frozen=True, slots=True)
class Inputs:
    """One forward pass over N tokens."""

    tokens: Tensor  # [N] ids
    positions: Tensor  # [N] within the sequence
    cells: Tensor  # [N] KV cells to write to
    attention: StepAttention
    at: Tensor  # [R] flat tokens whose logits are wanted, ascending
    sampled: tuple[int, ...]  # [R] the rows of those tokens
    slots: Tensor  # [R] the slots of those rows
    draws: SamplingColumns  # [R]
    scorings: tuple[PromptScoring, ...]
    spans: Ints  # [rows, 2] each row's first flat token and the one after its last, no padding
    errors: dict[int, str]  # row -> why it cannot be computed; it runs, and its result is dropped


class InputsBuilder:
    """Builds the inputs of each step from its batch and the tables of its sequences."""

    def __init__(
        self,
        slots: Slots,
        attention: Attention,
        size: int,
        vocab: int,
        last: LastTokens | None = None,
    ) -> None:
        """size: tokens of a block. last: each slot's last sampled token; None: no row needs it."""
        self.slots, self.attention, self.size, self.vocab = slots, attention, size, vocab
        self.device, self._last = slots.device, last

    def build(self, batch: Batch) -> Inputs:
        """Build a batch's inputs; add its blocks to the tables. Its sequences must have begun."""
        slots = self._take_in(batch.rows)
        starts = np.array([row.start for row in batch.rows], dtype=np.int64)
        lengths = np.array([len(row.tokens) for row in batch.rows], dtype=np.int64)
        wants = np.array([row.want for row in batch.rows], dtype=np.int64)
        flat, spans = FlatTokens(), np.empty((len(slots), 2), dtype=np.int64)
        order = single = starts.argsort(kind="stable")
        if batch.width > 1 or lengths.max() > 1:
            alone = (lengths == 1) & (batch.width <= 1)
            single = order[alone[order]]
            order = np.concatenate([single, np.flatnonzero(~alone)])
        self._add_singles(batch, single, slots[single], starts[single], flat)
        spans[single, 0] = np.arange(len(single))
        for i in order[len(single) :].tolist():
            spans[i, 0] = flat.length
            self._add_row(batch.rows[i], slots[i], batch.width, flat)
        for _ in range(batch.held if batch.width > 1 else 0):
            self._add_held_slot(batch.width, flat)
        spans[:, 1] = spans[:, 0] + lengths
        wanted = order[(wants[order] & LAST) > 0]
        tokens, unknown, errors = self._checked(joined(flat.tokens), spans)
        errors |= self.slots.refusals(batch.rows)
        columns = tokens, joined(flat.positions), joined(flat.cells)
        sent = send(self.device, *columns, spans[wanted, 1] - 1, slots[wanted])
        if self._last is not None and len(unknown):
            at, of = send(self.device, spans[unknown, 1] - 1, slots[unknown])
            self._last.fill(sent[0], at, of)
        return Inputs(
            tokens=sent[0],
            positions=sent[1],
            cells=sent[2],
            attention=self.attention.of_step(flat.rows()),
            at=sent[3],
            sampled=tuple(wanted.tolist()),
            slots=sent[4],
            draws=self.slots.draws(slots[wanted], (starts + lengths)[wanted]),
            scorings=self._prompt_scorings(batch, wants, slots, spans),
            spans=spans,
            errors=errors,
        )

    def _take_in(self, rows: Sequence[Row]) -> Ints:
        """Add each row's new blocks and tokens to its slot, and return the slots."""
        of, extend = self.slots.of, self.slots.extend
        slots = np.array([of[row.sequence] for row in rows], dtype=np.int64)
        histories, matchers = self.slots.histories, self.slots.matchers
        for slot, row in zip(slots.tolist(), rows, strict=True):
            if row.blocks:
                extend(slot, row.blocks)
            if slot in histories:
                histories[slot].extend(row.start, row.tokens)
            if slot in matchers:
                matchers[slot].extend(row.start, row.tokens)
        return slots

    def _add_singles(
        self, batch: Batch, rows: Ints, slots: Ints, starts: Ints, flat: FlatTokens
    ) -> None:
        """Add the rows of one token, the shortest past first, then the held slots if width is 1.

        A held slot's table is all scratch. It attends to the longest row's keys, rounded up to
        whole blocks.
        """
        count = len(rows) + (batch.held if batch.width == 1 else 0)
        if not count:
            return
        size = self.size
        tokens = np.array([batch.rows[i].tokens[0] for i in rows.tolist()], dtype=np.int64)
        cells = self.slots.tables.host[slots, starts // size] * size + starts % size
        columns = [tokens, starts, cells, slots, starts + 1]
        if held := count - len(rows):
            most = (starts[-1] // size + 1) * size if len(rows) else size
            idle = np.zeros(held, dtype=np.int64)
            scratch = np.arange(len(rows), count) % size
            more = (idle, idle, scratch, idle, idle + most)
            columns = [np.concatenate(each) for each in zip(columns, more, strict=True)]
        flat.add_singles(*columns)

    def _prompt_scorings(
        self, batch: Batch, wants: Ints, slots: Ints, spans: Ints
    ) -> tuple[PromptScoring, ...]:
        if not self.slots.histories:  # they hold the prompts' next tokens
            return ()
        asked = (wants & PROMPT).astype(bool) & (slots != REFUSED_SLOT)
        return tuple(
            self._prompt_scoring(i, batch.rows[i], slots[i], spans[i, 0])
            for i in np.flatnonzero(asked).tolist()
        )

    def _prompt_scoring(self, i: int, row: Row, slot: int, begin: int) -> PromptScoring:
        history = self.slots.histories[slot]
        end = min(row.start + len(row.tokens), history.prompt - 1)
        next_tokens = np.array(history.known[row.start + 1 : end + 1], dtype=np.int64)
        return PromptScoring(
            i, int(begin), send_one(self.device, next_tokens), history.sampling.prompt_logprobs
        )

    def _add_row(self, row: Row, slot: int, width: int, flat: FlatTokens) -> None:
        """Add a row of several tokens. Padding after it attends to the same keys as its last
        token."""
        size, own = self.size, len(row.tokens)
        end = row.start + own
        padding = max(0, width - own)
        positions = np.arange(row.start, end)
        table = self.slots.tables.host[slot, : -(-end // size)]
        idle = np.arange(padding)
        flat.add(
            np.concatenate([np.array(row.tokens, dtype=np.int64), np.zeros_like(idle)]),
            np.concatenate([positions, np.full(padding, end - 1)]),
            np.concatenate([table[positions // size] * size + positions % size, idle % size]),
            slot,
            end,
        )

    def _add_held_slot(self, width: int, flat: FlatTokens) -> None:
        """Add a held slot of several tokens: the work of a prompt, written to the scratch block."""
        idle = np.arange(width)
        flat.add(np.zeros_like(idle), idle, idle % self.size, REFUSED_SLOT, width)

    def _checked(self, tokens: Ints, spans: Ints) -> tuple[Ints, Ints, dict[int, str]]:
        """Tokens with 0 for invalid ids, the rows whose last token is not known yet, and an error
        for each row with an invalid id.

        An invalid id must not fail the step for the other rows.
        """
        unknown = np.zeros(0, dtype=np.int64)
        if tokens.min() >= 0 and tokens.max() < self.vocab:
            return tokens, unknown, {}
        bad = (tokens < 0) | (tokens >= self.vocab)
        if self._last is not None:
            last = spans[:, 1] - 1
            unknown = np.flatnonzero(tokens[last] == UNKNOWN)
            bad[last[unknown]] = False
        errors = {
            i: f"token {int(mine[theirs].item(0))} is outside the vocabulary of {self.vocab}"
            for i, (begin, end) in enumerate(spans.tolist())
            if (theirs := bad[begin:end]).any()
            for mine in [tokens[begin:end]]
        }
        return np.where(tokens < 0, 0, np.where(bad, 0, tokens)), unknown, errors
