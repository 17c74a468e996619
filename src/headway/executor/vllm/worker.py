"""The code that runs inside vLLM's workers: a step, and what vLLM's scheduler never asks for.

vLLM mixes WorkerExtension into its worker (`worker_extension_cls`). All code here is written for
vLLM's first (V1) model runner (vllm/v1/worker/gpu_model_runner.py), the one that CPUs use.
"""

import logging
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class StepNotes:
    """What a step needs besides vLLM's SchedulerOutput. Keys are vLLM's request ids."""

    prompts: Mapping[str, int] = field(default_factory=dict)  # of resumed requests: prompt length
    silent: tuple[str, ...] = ()  # requests with all tokens computed, but none sampled
    scored: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # prompt positions to score
    grammar: Any = None  # vLLM's GrammarOutput; None: no row has a grammar


class PromptScores(NamedTuple):
    """Log-probabilities of a prompt's tokens: column 0 the token's own, then the likeliest ones."""

    ids: Any  # int32 array [positions, 1 + n]
    values: Any  # float32 array [positions, 1 + n]


class StepResult(NamedTuple):
    """What the driver worker returns of a step."""

    output: Any  # vLLM's ModelRunnerOutput
    scores: Mapping[str, PromptScores]  # by request
    not_finite: tuple[str, ...]  # requests with NaN or infinity in hidden states or logits


class StepFailure(NamedTuple):
    """What any worker returns of a step in which vLLM raised an error."""

    error: str


class WorkerExtension:
    """Methods that vLLM mixes into its worker; `headway_step` is the main one."""

    def headway_step(
        self: Any, scheduled: Any, notes: StepNotes
    ) -> StepResult | StepFailure | None:
        """Compute a step and sample its tokens. Returns None unless this is the driver worker.

        After a failure the next step can still be computed. It is returned, not raised: vLLM reads
        no further than the first worker that has raised, and would take what the others say of this
        step for their answers to the next one.
        """
        try:
            return _compute(self, scheduled, notes)
        except Exception as error:
            logging.getLogger("headway.engine").exception("a step failed in a worker of vLLM")
            return StepFailure(f"{type(error).__name__}: {error}")

    def headway_ignore_signals(self: Any, engine: int, numbers: tuple[int, ...]) -> None:
        """Ignore these signals, unless this process is the engine (its process id).

        Signals may reach the whole process group. vLLM's workers end at SIGINT and SIGTERM, even
        if the engine still has requests to answer.
        """
        for number in numbers if os.getpid() != engine else ():
            signal.signal(number, signal.SIG_IGN)

    def headway_leave_out_ranks(self: Any) -> None:
        """Do not rank tokens by their log-probability: headway does not read the ranks. vLLM
        compiles their function in the first step with log-probabilities. That takes many seconds,
        and without a C++ compiler the step fails."""
        from vllm.v1.sample import sampler

        sampler.batched_count_greater_than = _no_ranks

    def headway_threads(self: Any) -> int:
        """The number of threads that this worker computes with."""
        import torch

        return torch.get_num_threads()

    def headway_weights(self: Any) -> int:
        """Bytes of the weights in this worker."""
        parameters = self.model_runner.model.parameters()
        return sum(each.numel() * each.element_size() for each in parameters)


def _no_ranks(logprobs: Any, values: Any) -> Any:
    return values.new_zeros(len(logprobs), dtype=int)


def _compute(worker: Any, scheduled: Any, notes: StepNotes) -> StepResult | None:
    """As headway_step. Raises what vLLM raises."""
    runner, not_finite = worker.model_runner, tuple[str, ...]()
    try:
        output = worker.execute_model(scheduled)
        if output is None:
            peaks = _peaks(runner, scheduled.total_num_scheduled_tokens)
            _begin_again(runner, notes.prompts)
            with _keyed_draws(runner, notes.silent):
                output = worker.sample_tokens(notes.grammar)
            not_finite = _clear_not_finite(runner, _finite(runner, *peaks))
    finally:
        runner.execute_model_state = None  # left over if the step failed between the two
    if not worker.is_driver_worker:
        return None
    scores = {id: _scores(runner, output, id, *span) for id, span in notes.scored.items()}
    output.prompt_logprobs_dict = {}
    return StepResult(output, scores, not_finite)


def _peaks(runner: Any, tokens: int) -> tuple[Any, Any]:
    """The largest logit of each request, and the largest number in the hidden state of each of the
    step's tokens: NaN if any is NaN."""
    state = runner.execute_model_state
    return state.logits.amax(dim=-1), state.hidden_states[:tokens].abs().amax(dim=-1)


def _finite(runner: Any, logits: Any, states: Any) -> list[bool]:
    """By index in vLLM's batch: whether all that a request computed in this step is finite. Where
    layers have windows, the logits after its last token do not depend on its first ones."""
    import numpy as np

    finite = logits.isfinite().cpu().numpy()
    if len(states) > len(finite):
        begins = runner.query_start_loc.np[: len(finite)]
        finite &= np.logical_and.reduceat(states.isfinite().cpu().numpy(), begins)
    found: list[bool] = finite.tolist()
    return found


def _clear_not_finite(runner: Any, finite: list[bool]) -> tuple[str, ...]:
    """Zero the keys and values that requests with NaN or infinity wrote in this step.

    finite: by index in vLLM's batch. Returns these requests. Other requests get the blocks later.
    vLLM's CPU attention multiplies what is left in a block's unused places by a weight of 0, and
    0 * NaN is NaN. No other request has these blocks yet: they were not full before this step.
    """
    ids = tuple([runner.input_batch.req_ids[i] for i, each in enumerate(finite) if not each])
    blocks = list[int]()
    for id in ids:
        state = runner.requests[id]
        blocks += state.block_ids[0][state.num_computed_tokens // runner.cache_config.block_size :]
    if not blocks:
        return ids
    if runner.device.type == "cpu":  # vLLM's own way leaves out layers that all have windows
        for layer in runner.kv_caches:
            for block in blocks:
                layer[block].zero_()
    else:
        if not hasattr(runner, "_kv_block_zeroer"):
            runner._init_kv_zero_meta()
        runner._zero_block_ids(blocks)
    return ids


def _begin_again(runner: Any, prompts: Mapping[str, int]) -> None:
    """Tell vLLM which tokens of a resumed request were generated. A preempted request resumes with
    all its tokens as a prompt, but penalties, min_tokens and seeds need the difference."""
    for id, length in prompts.items():
        state, index = runner.requests[id], runner.input_batch.req_id_to_index[id]
        known = state.prompt_token_ids
        state.output_token_ids.extend(known[length:])
        state.prompt_token_ids, state.num_prompt_tokens = known[:length], length
        runner.input_batch.num_prompt_tokens[index] = length


@contextmanager
def _keyed_draws(runner: Any, silent: Iterable[str]) -> Iterator[None]:
    """While sampling, make each row's random numbers depend only on its seed and position, and let
    rows that sample nothing draw none.

    vLLM seeds a generator once per request. So its draws would depend on preemptions and on how
    often the prompt was split. A split prompt with a seed would even fail on a CPU, where a
    generator cannot be rewound.
    """
    batch = runner.input_batch
    discarded = runner.discard_request_mask.np
    for id in silent:
        discarded[batch.req_id_to_index[id]] = True
    aside = {}
    for index, generator in list(batch.generators.items()):
        if discarded[index]:
            aside[index] = batch.generators.pop(index)
        else:
            seed = runner.requests[batch.req_ids[index]].sampling_params.seed
            generator.manual_seed(mixed(seed, int(batch.num_tokens_no_spec[index])))
    try:
        yield
    finally:
        batch.generators.update(aside)


def mixed(seed: int, position: int) -> int:
    """A seed for one position, by splitmix64's mixer. torch's CPU generator reads only 32 bits."""
    return (_splitmix(_splitmix(seed) ^ position)) >> 1


def _splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def _scores(runner: Any, output: Any, id: str, begin: int, end: int) -> PromptScores:
    """This step's part of a prompt's scores. vLLM collects them until the prompt is computed."""
    whole = output.prompt_logprobs_dict.get(id)
    if whole is None:
        whole = runner.requests[id].in_progress_prompt_logprobs_cpu
    return PromptScores(
        whole.logprob_token_ids[begin:end].numpy(), whole.logprobs[begin:end].numpy()
    )
