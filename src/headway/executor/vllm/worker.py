"""What runs inside vLLM's workers: a step, and what vLLM's own scheduler never asks for.

vLLM mixes WorkerExtension into its worker (`worker_extension_cls`). Everything here reads vLLM's
first model runner (vllm/v1/worker/gpu_model_runner.py), which is what it has on CPUs.
"""

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class StepNotes:
    """What a step needs beside vLLM's SchedulerOutput. Requests are named by vLLM's ids."""

    prompts: Mapping[str, int] = field(default_factory=dict)  # who begins again: prompt's length
    silent: tuple[str, ...] = ()  # all their tokens are computed, and none is sampled
    scored: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # positions of the prompt
    grammar: Any = None  # vLLM's GrammarOutput; None: no row has a grammar


class PromptScores(NamedTuple):
    """Log-probabilities of a prompt's tokens. Column 0 is the token's own, then the likeliest."""

    ids: Any  # int32 array [positions, 1 + n]
    values: Any  # float32 array [positions, 1 + n]


class WorkerExtension:
    """Mixed into vLLM's worker. `headway_step` is what it is for."""

    def headway_step(self: Any, scheduled: Any, notes: StepNotes) -> Any:
        """Compute a step and sample its tokens.

        Returns vLLM's ModelRunnerOutput and PromptScores by request; None from workers that do not
        drive. Raises what vLLM raises; the next step can be computed all the same.
        """
        runner = self.model_runner
        try:
            output = self.execute_model(scheduled)
            if output is None:
                _begin_again(runner, notes.prompts)
                with _keyed_draws(runner, notes.silent):
                    output = self.sample_tokens(notes.grammar)
        finally:
            runner.execute_model_state = None  # of a step that failed between the two
        if not self.is_driver_worker:
            return None
        scores = {id: _scores(runner, output, id, *span) for id, span in notes.scored.items()}
        output.prompt_logprobs_dict = {}
        return output, scores

    def headway_ignore_signals(self: Any, engine: int, numbers: tuple[int, ...]) -> None:
        """Ignore these signals, unless this is the process that asks for it (its number).

        They reach the whole process group, and vLLM's workers end at SIGINT and SIGTERM, in the
        middle of what the engine still has to answer.
        """
        for number in numbers if os.getpid() != engine else ():
            signal.signal(number, signal.SIG_IGN)

    def headway_threads(self: Any) -> int:
        """Threads that this worker computes with."""
        import torch

        return torch.get_num_threads()

    def headway_weights(self: Any) -> int:
        """Bytes of the weights in this worker."""
        parameters = self.model_runner.model.parameters()
        return sum(each.numel() * each.element_size() for each in parameters)


def _begin_again(runner: Any, prompts: Mapping[str, int]) -> None:
    """Requests that were preempted began with all their tokens as a prompt. Tell vLLM which of them
    were generated: penalties, min_tokens and seeds read that."""
    for id, length in prompts.items():
        state, index = runner.requests[id], runner.input_batch.req_id_to_index[id]
        known = state.prompt_token_ids
        state.output_token_ids.extend(known[length:])
        state.prompt_token_ids, state.num_prompt_tokens = known[:length], length
        runner.input_batch.num_prompt_tokens[index] = length


@contextmanager
def _keyed_draws(runner: Any, silent: Iterable[str]) -> Iterator[None]:
    """While tokens are sampled: each row's random numbers depend on its seed and position alone,
    and rows that sample nothing draw none.

    vLLM seeds a generator once for each request. Its draws would then depend on how often the
    prompt was split and on preemptions; and a split prompt with a seed fails on a CPU, where a
    generator cannot be set back.
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
    """A seed for one position, by splitmix64's mixer: torch's CPU generator reads 32 bits of it."""
    return (_splitmix(_splitmix(seed) ^ position)) >> 1


def _splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def _scores(runner: Any, output: Any, id: str, begin: int, end: int) -> PromptScores:
    """vLLM collects a prompt's scores until the prompt is computed: take this step's part."""
    whole = output.prompt_logprobs_dict.get(id)
    if whole is None:
        whole = runner.requests[id].in_progress_prompt_logprobs_cpu
    return PromptScores(
        whole.logprob_token_ids[begin:end].numpy(), whole.logprobs[begin:end].numpy()
    )
