"""EncoderExecutor: computes steps of whole prompts, laid end to end without padding."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headway.core.batch import Batch, Output, Row, Want
from headway.core.request import Pooling
from headway.engine import Executor
from headway.executor.encoder.model import EncoderModel, types_of
from headway.executor.encoder.ragged import Texts
from headway.executor.torch.loading.dense import Dense
from headway.executor.traits import Traits

WANTED = Want.VECTOR.value
NO_LAYERS = Dense()


class EncoderExecutor(Executor):
    """Computes each prompt as one row of one step: attention is bidirectional, so a prompt cannot
    be split and nothing is kept between steps. For use by one thread.
    """

    def __init__(
        self,
        model: EncoderModel,
        poolings: Sequence[str],
        separator: int = -1,
        dense: Dense = NO_LAYERS,
    ) -> None:
        """poolings: those it supports, the checkpoint's own first. separator: the token before the
        second text of a pair; -1: all tokens have the same type. dense: layers applied to a pooled
        embedding."""
        self.model, self._separator, self._dense = model, separator, dense
        self.traits = Traits(
            "an encoder",
            "encoder",
            generates=False,
            logprobs=False,
            prompt_logprobs=False,
            grammars=False,
            exclusive_groups=False,
            splits_prompts=False,
            poolings=tuple(poolings),
            width=dense.width(model.hidden),
        )
        self.computed = 0  # tokens
        self._of: dict[int, str] = {}  # the pooling of each sequence
        self._outputs: dict[int, Output] = {}

    @torch.inference_mode()
    def prepare(self, tokens: int, sampled: int, seconds: float) -> None:
        """Run two short texts, so that the first request does not wait for torch's preparations."""
        for length in (1, 16):
            texts = Texts.of([length], self.model.device)
            zeros = torch.zeros(length, dtype=torch.int64, device=self.model.device)
            self.model.hidden_states(zeros, zeros, texts)

    @torch.inference_mode()
    def submit(self, batch: Batch) -> int:
        for sequence in batch.ended:
            self._of.pop(sequence, None)
        for begun in batch.begun:
            self._of[begun.sequence] = begun.pooling
        errors = {i: why for i, row in enumerate(batch.rows) if (why := self._problem(row))}
        rows = [row for i, row in enumerate(batch.rows) if i not in errors]
        vectors = iter(self._computed(rows) if rows else [])
        made = {i: next(vectors) for i in range(len(batch.rows)) if i not in errors}
        for i, vector in made.items():
            if not np.isfinite(np.frombuffer(vector, np.float32)).all():
                errors[i] = "the model computed numbers that are not finite"
        none = ((),) * len(batch.rows)
        self._outputs[batch.step] = Output(none, errors=errors, vectors=made)
        return batch.step

    def collect(self, ticket: int) -> Output:
        return self._outputs.pop(ticket)

    def _problem(self, row: Row) -> str:
        """Why a row cannot be computed; empty: it can."""
        if row.sequence < 0:  # a probe of the guard: do steps work at all?
            return ""
        if not row.want & WANTED:
            return "the model generates nothing"
        if self._of[row.sequence] not in self.traits.poolings:
            return f"the model has no pooling {str(self._of[row.sequence])!r}"
        vocab = self.model.vocab
        bad = [token for token in row.tokens if not 0 <= token < vocab]
        return f"token {bad[0]} is outside the vocabulary of {vocab}" if bad else ""

    def _computed(self, rows: Sequence[Row]) -> list[bytes]:
        """Compute the rows' vectors, as float32 bytes."""
        model, device = self.model, self.model.device
        ids = [token for row in rows for token in row.tokens]
        types = [each for row in rows for each in types_of(row.tokens, self._separator)]
        self.computed += len(ids)
        texts = Texts.of([len(row.tokens) for row in rows], device)
        tokens, typed = torch.tensor([ids, types], device=device)
        hidden = model.hidden_states(tokens, typed, texts)
        kinds = [self._of.get(row.sequence) or self.traits.poolings[0] for row in rows]
        by_kind = {kind: self._vectors(hidden, texts, kind) for kind in dict.fromkeys(kinds)}
        return [by_kind[kind][i].tobytes() for i, kind in enumerate(kinds)]

    def _vectors(self, hidden: Tensor, texts: Texts, kind: str) -> np.ndarray:
        vectors = self.model.vector(hidden, texts, kind)
        embeds = kind != Pooling.HEAD
        return (self._dense(vectors) if embeds else vectors).cpu().numpy()
