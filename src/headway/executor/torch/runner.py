"""TorchExecutor: computes batches with a torch model, behind submit and collect."""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import torch
from torch import Tensor

from headway.core.batch import Batch, Logprob, Output
from headway.core.grammar import Grammar
from headway.engine import Executor
from headway.executor.grammars.grammar import GrammarCompiler
from headway.executor.torch.decoder import Decoder, row_counts
from headway.executor.torch.inputs import Inputs, InputsBuilder, PromptScoring
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.memory.memory_plan import LOGIT_ELEMENTS
from headway.executor.torch.sampling.sampling import (
    RowLogprobs,
    sample,
    to_logprob_columns,
    token_logprobs,
)
from headway.executor.torch.slots import Slots
from headway.executor.traits import Traits

ALL_BANNED = "no token can be sampled: the grammar, bad words and min_tokens ban them all"


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    """A step that was submitted; its results may still be on the device."""

    rows: int
    inputs: Inputs
    finite: Tensor  # [N] whether a token's hidden state is finite
    picked: Tensor  # [R] sampled tokens; -1 where all are banned
    finite_logits: Tensor  # [R] whether a row's logits are finite
    scores: RowLogprobs | None
    prompt_scores: dict[int, list[RowLogprobs]]  # of the rows whose prompt is scored
    host_ns: int  # nanoseconds in which the device waited for the host


class TorchExecutor(Executor):
    """Computes batches on one device, one step after the other. For one thread."""

    traits = Traits("headway's executor")

    def __init__(
        self, model: Decoder, cache: KVCache, context: int = 0, folder: Path = Path()
    ) -> None:
        """context: the most tokens of a sequence; 0: the model's.

        folder: the checkpoint's; the first grammar reads its tokenizer. Empty: there is none.
        """
        self.model, self.cache = model, cache
        self.computed = 0  # tokens through the linear layers, padding included
        config = model.config
        length = context or config.context
        self._grammars = GrammarCompiler(folder, config.vocab, frozenset(config.eos))
        self._slots = Slots(-(-length // cache.block_size), self._grammars, model.device)
        self._builder = InputsBuilder(self._slots, cache, config.vocab)
        self._flights: dict[int, _StepInFlight] = {}

    def compile(self, grammar: Grammar) -> None:
        """As Executor.compile. The first grammar reads the tokenizer."""
        self._grammars.compile(grammar)

    @torch.inference_mode()
    def prepare(self, tokens: int, sampled: int, seconds: float) -> None:
        """On a CPU, run the products of all step sizes once, the smallest first, within `seconds`.
        Later steps then need not wait for it, and memory does not grow.

        tokens and sampled: the most tokens and sampled rows of a step.
        """
        until = perf_counter_ns() + seconds * 1e9
        rounding = self.model.rounding
        for rows in row_counts(tokens, rounding) if self.model.device.type == "cpu" else ():
            if perf_counter_ns() < until:
                self.model.prepare(rows, rows <= rounding.of(sampled))

    @torch.inference_mode()
    def submit(self, batch: Batch) -> int:
        """Begin a step of at least one row and return its ticket.

        The device waits while the inputs are built. A CPU computes nothing in the background, so
        there the sampling counts as such time too.
        """
        began = perf_counter_ns()
        for sequence in batch.ended:
            self._slots.end(sequence)
        for begun in batch.begun:
            self._slots.begin(begun)
        inputs = self._builder.build(batch)
        host_ns = perf_counter_ns() - began
        self.computed += inputs.tokens.numel()
        x = self.model.forward(inputs, self.cache)
        picked = finite_logits = torch.empty(0, dtype=torch.int64, device=x.device)
        scores = None
        if inputs.sampled:
            logits = self.model.logits(x[inputs.at])
            computed = perf_counter_ns()
            picked, finite_logits = sample(logits, inputs.draws), logits.sum(dim=-1).isfinite()
            if (inputs.draws.logprobs >= 0).any():
                scores = token_logprobs(logits, picked.clamp_min(0), inputs.draws.logprobs)
            if x.device.type == "cpu":
                host_ns += perf_counter_ns() - computed
        finite = x.sum(dim=-1).isfinite()
        prompt_scores = {each.row: self._score(x, each) for each in inputs.scorings}
        rows = len(batch.rows)
        self._flights[batch.step] = _StepInFlight(
            rows, inputs, finite, picked, finite_logits, scores, prompt_scores, host_ns
        )
        return batch.step

    def _score(self, x: Tensor, wanted: PromptScoring) -> list[RowLogprobs]:
        """Score a prompt, some positions at a time: all its logits at once would be gigabytes."""
        few = max(1, LOGIT_ELEMENTS // self.model.config.vocab)
        found = []
        for at, next_tokens in enumerate(torch.split(wanted.next_tokens, few)):
            begin = wanted.begin + at * few
            logits = self.model.logits(x[begin : begin + len(next_tokens)])
            found.append(
                token_logprobs(logits, next_tokens, np.full(len(next_tokens), wanted.top_logprobs))
            )
        return found

    def collect(self, ticket: int) -> Output:
        """Wait for a step and return its tokens, log-probabilities and errors by row.

        A row with NaN or infinity has an error and no token. Other rows are not affected.
        """
        flight = self._flights.pop(ticket)
        inputs = flight.inputs
        errors = self._errors(flight)
        tokens: list[tuple[int, ...]] = [()] * flight.rows
        for row, token in zip(inputs.sampled, flight.picked.tolist(), strict=True):
            if row not in errors:
                tokens[row] = (token,)
        by_row: dict[int, tuple[Logprob, ...]] = {}
        if flight.scores is not None:
            for at, logprob in flight.scores.to_logprobs().items():
                if (row := inputs.sampled[at]) not in errors:
                    by_row[row] = (logprob,)
        prompt_scores = {
            row: to_logprob_columns(scores) for row, scores in flight.prompt_scores.items()
        }
        return Output(tuple(tokens), by_row, errors, prompt_scores, flight.host_ns)

    def _errors(self, flight: _StepInFlight) -> dict[int, str]:
        inputs, errors = flight.inputs, dict(flight.inputs.errors)
        if not bool(flight.finite.all()):
            for row, (begin, end) in enumerate(inputs.spans.tolist()):
                if not bool(flight.finite[begin:end].all()):
                    errors.setdefault(row, "the model computed numbers that are not finite")
        if not bool(flight.finite_logits.all()):
            for row, finite_logits in zip(
                inputs.sampled, flight.finite_logits.tolist(), strict=True
            ):
                if not finite_logits:
                    errors.setdefault(row, "the model's logits are not finite")
        for at, matcher in inputs.draws.matchers.items():
            if matcher.error:  # found while the mask was computed
                errors.setdefault(inputs.sampled[at], matcher.error)
        if inputs.draws.ban:
            for row, token in zip(inputs.sampled, flight.picked.tolist(), strict=True):
                if token < 0:
                    errors.setdefault(row, ALL_BANNED)
        return errors
