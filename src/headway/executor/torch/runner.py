"""TorchExecutor: computes batches with a torch model, behind submit and collect."""

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import torch
from torch import Tensor

from headway.core.batch import Batch, Begun, Logprob, Output, Row, Want
from headway.core.grammar import ALL_BANNED, Grammar
from headway.core.kv.blocks import SCRATCH
from headway.core.sampling import Sampling
from headway.engine import Executor
from headway.executor.grammars.grammar import GrammarCompiler
from headway.executor.torch.attention.choose import attention_of
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.decoder import Decoder, row_counts
from headway.executor.torch.inputs import Inputs, InputsBuilder, PromptScoring
from headway.executor.torch.last_tokens import LastTokens
from headway.executor.torch.loading.dense import Dense
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.memory.memory_plan import LOGIT_ELEMENTS
from headway.executor.torch.memory.transfer import Arrival, copy_stream
from headway.executor.torch.pooling import Pooler
from headway.executor.torch.sampling.sampling import (
    RowLogprobs,
    sample,
    to_logprob_columns,
    token_logprobs,
)
from headway.executor.torch.slots import Slots
from headway.executor.traits import HEADLESS, OF_CLASSIFIERS, OURS, Traits

TRIED, LONG = -2, 1024  # the warm-up sequence, and its most tokens
NO_LAYERS = Dense()
NOT_FINITE = "the model computed numbers that are not finite"


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    """A submitted step, whose results may still be on their way."""

    rows: int
    inputs: Inputs
    # [R + R + N]: sampled tokens, -1 if all are banned; whether each row's logits are finite;
    # whether each token's hidden state is. Only [R]: everything is finite.
    results: Arrival  # followed by the tensors of all scores, then the vectors
    scores: RowLogprobs | None
    prompt_scores: dict[int, list[RowLogprobs]]  # by row whose prompt is scored
    pooled: tuple[int, ...]  # the rows that the vectors belong to
    host_ns: int  # nanoseconds in which the device waited for the host


class TorchExecutor(Executor):
    """Computes batches on one device, one step after the other. For use by one thread.

    Unless the device is a CPU, `submit` does not wait for it and two steps may be in flight. A
    token that the host does not know yet (UNKNOWN) is read from the device's own memory.
    """

    def __init__(
        self,
        model: Decoder,
        cache: KVCache,
        context: int = 0,
        folder: Path = Path(),
        overlapped: bool | None = None,
        dense: Dense = NO_LAYERS,
    ) -> None:
        """context: the most tokens of a sequence; 0: the model's.

        folder: of the checkpoint, whose tokenizer the first grammar reads; empty: there is none.
        overlapped: whether submit never waits for the device; None: True unless the device is a
        CPU, which computes nothing in the background. dense: layers applied to a pooled embedding.
        """
        self.model, self.cache = model, cache
        self.computed = 0  # tokens through the linear layers, padding included
        config, device = model.config, model.device
        self.overlapped = device.type != "cpu" if overlapped is None else overlapped
        depth = 2 if self.overlapped else 1
        width = dense.width(config.hidden)
        self.traits = replace(_traits(config), steps_in_flight=depth, width=width)
        self._context = length = context or config.context
        self._grammars = GrammarCompiler(folder, config.vocab, frozenset(config.eos))
        self._slots = Slots(
            -(-length // cache.block_size), self._grammars, device, self.traits.poolings
        )
        self.attention = attention_of(config, cache, self._slots.tables)
        self._nothing = torch.empty(0, dtype=torch.int64, device=device)
        self._last = LastTokens(self._slots.count, device) if self.overlapped else None
        self._builder = InputsBuilder(
            self._slots, self.attention, cache.block_size, config.vocab, self._last
        )
        self._pooler = Pooler(model.hidden, model.scores, dense)
        self._copies = copy_stream(device)
        self._flights: dict[int, _StepInFlight] = {}

    def compile(self, grammar: Grammar) -> None:
        """As Executor.compile. The first grammar reads the tokenizer."""
        self._grammars.compile(grammar)

    @torch.inference_mode()
    def prepare(self, tokens: int, sampled: int, seconds: float) -> None:
        """Warm up. If steps are rounded (on a CPU), run the products of every step size once, the
        smallest first, for about `seconds`: later steps then do not wait, nor does memory grow.
        Otherwise run a prompt chunk and a long row once, so that all kernels are compiled.

        tokens and sampled: the most tokens and sampled rows of a step.
        """
        until = perf_counter_ns() + seconds * 1e9
        rounding = self.model.rounding
        if rounding.is_exact:
            self._run_once()
            return
        for rows in row_counts(tokens, rounding):
            if perf_counter_ns() < until:
                self.model.prepare(rows, rows <= rounding.of(sampled))

    def _run_once(self) -> None:
        """Run a chunk and a long row of a warm-up sequence, all in the scratch block."""
        size, at = self.cache.block_size, min(self._context, LONG) - 1
        blocks = (SCRATCH,) * (at // size + 1)
        begun = Begun(TRIED, 1, Sampling())
        chunk = Batch(TRIED, (Row(TRIED, 0, (0,) * min(8, at + 1), blocks, Want.LAST),), (begun,))
        for batch in (chunk, Batch(TRIED, (Row(TRIED, at, (0,), (), Want.LAST),))):
            self.collect(self.submit(batch))
        self._slots.end(TRIED)

    @torch.inference_mode()
    def submit(self, batch: Batch) -> int:
        """Start a step of at least one row and return its ticket.

        The device waits while the inputs are built: this is the step's host time. On a CPU, which
        computes nothing in the background, sampling counts as host time too.
        """
        began = perf_counter_ns()
        for sequence in batch.ended:
            self._slots.end(sequence)
            self._pooler.end(sequence)
        for begun in batch.begun:
            self._slots.begin(begun)
            self._pooler.begin(begun)
        inputs = self._builder.build(batch)
        host_ns = perf_counter_ns() - began
        self.computed += inputs.tokens.numel()
        x = self.model.forward(inputs, self.cache)
        picked = finite_logits = self._nothing
        scores = None
        if inputs.sampled:
            draws, asked = inputs.draws, x if len(inputs.at) == len(x) else x[inputs.at]
            if draws.greedy and (found := self.model.likeliest(asked)) is not None:
                picked, finite_logits = found
                computed = perf_counter_ns()
            else:
                logits = self.model.logits(asked)
                computed = perf_counter_ns()
                picked = sample(logits, draws, waits=not self.overlapped)
                finite_logits = logits.sum(dim=-1).isfinite()
                if (draws.logprobs >= 0).any():
                    scores = token_logprobs(logits, picked.clamp_min(0), draws.logprobs)
            if self._last is not None:
                self._last.keep(inputs.slots, picked, self._slots.count)
            if x.device.type == "cpu":
                host_ns += perf_counter_ns() - computed
        results = self._results(picked, finite_logits, x)
        prompt_scores = {each.row: self._score(x, each) for each in inputs.scorings}
        vectors = self._pooler.pool(batch.rows, inputs.spans, x)
        parts = [*([scores] if scores else []), *chain(*prompt_scores.values())]
        scored = (tensor for part in parts for tensor in part.tensors)
        tensors = [results, *scored, *vectors.tensors]
        rows, arrival = len(batch.rows), Arrival(tensors, self._copies)
        self._flights[batch.step] = _StepInFlight(
            rows, inputs, arrival, scores, prompt_scores, vectors.rows, host_ns
        )
        return batch.step

    def _results(self, picked: Tensor, finite_logits: Tensor, x: Tensor) -> Tensor:
        """The tensor of _StepInFlight.results. If every token's logits are finite, so are the
        hidden states. With overlapped steps this is not looked at: the host would have to wait."""
        whole = self._last is None and len(picked) == len(x)
        if whole and all(finite_logits.tolist()):
            return picked
        finite = x.sum(dim=-1).isfinite()
        return torch.cat((picked, finite_logits, finite))

    def _score(self, x: Tensor, wanted: PromptScoring) -> list[RowLogprobs]:
        """Score a prompt, a few positions at a time: all logits at once would take gigabytes."""
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
        """Wait for a step and return its tokens, scores, vectors and errors, all by row.

        A row with NaN or infinity gets an error and no token. Other rows are not affected.
        """
        flight = self._flights.pop(ticket)
        inputs, sampled = flight.inputs, len(flight.inputs.sampled)
        arrived = iter(flight.results.wait())
        results = next(arrived).tolist()
        picked = results[:sampled]
        errors = self._errors(inputs, picked, results[sampled:])
        tokens: list[tuple[int, ...]] = [()] * flight.rows
        for row, token in zip(inputs.sampled, picked, strict=True):
            if row not in errors:
                tokens[row] = (token,)
        by_row: dict[int, tuple[Logprob, ...]] = {}
        if flight.scores is not None:
            for at, logprob in flight.scores.on_host(arrived).to_logprobs().items():
                if (row := inputs.sampled[at]) not in errors:
                    by_row[row] = (logprob,)
        prompt_scores = {
            row: to_logprob_columns([each.on_host(arrived) for each in scores])
            for row, scores in flight.prompt_scores.items()
        }
        vectors = {row: next(arrived).numpy() for row in flight.pooled}
        for row, vector in vectors.items():
            if not np.isfinite(vector).all():  # made of states that are: by a norm or a head
                errors.setdefault(row, NOT_FINITE)
        packed = {row: vector.tobytes() for row, vector in vectors.items()}
        return Output(tuple(tokens), by_row, errors, prompt_scores, flight.host_ns, packed)

    def _errors(self, inputs: Inputs, picked: list[int], finite: list[int]) -> dict[int, str]:
        """Row -> why it cannot be answered. finite: whether each sampled row's logits are, then
        whether each token's hidden state is; empty: all are finite."""
        errors, sampled = dict(inputs.errors), len(inputs.sampled)
        if not all(finite):
            for row, (begin, end) in enumerate((inputs.spans + sampled).tolist()):
                if not all(finite[begin:end]):
                    errors.setdefault(row, NOT_FINITE)
            for row, has_finite_logits in zip(inputs.sampled, finite, strict=False):
                if not has_finite_logits:
                    errors.setdefault(row, "the model's logits are not finite")
        for at, matcher in inputs.draws.matchers.items():
            if matcher.error:  # found while the mask was computed
                errors.setdefault(inputs.sampled[at], matcher.error)
        for row, token in zip(inputs.sampled, picked, strict=True) if inputs.draws.ban else ():
            if token < 0:
                errors.setdefault(row, ALL_BANNED)
        return errors


def _traits(config: ModelConfig) -> Traits:
    if config.generates:
        return OURS
    return replace(HEADLESS, poolings=OF_CLASSIFIERS) if config.labels else HEADLESS
