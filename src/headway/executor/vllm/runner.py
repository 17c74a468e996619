"""VllmExecutor: vLLM's workers compute the batches that headway's scheduler makes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from headway.core.batch import Batch, Logprob, Logprobs, Output
from headway.core.grammar import Grammar
from headway.engine import Executor
from headway.errors import EngineDownError, EngineError
from headway.executor.grammars.grammar import GrammarCompiler
from headway.executor.logprobs import LogprobColumns
from headway.executor.traits import Traits
from headway.executor.vllm.adapters import Adapter
from headway.executor.vllm.sequences import Sequences
from headway.executor.vllm.step import BuiltStep, StepBuilder
from headway.executor.vllm.worker import PromptScores, StepFailure, StepResult

DEAD = "a worker of vLLM has died"
NOT_FINITE = "the model's logits are not finite"


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    rows: int
    step: BuiltStep
    finished: frozenset[str]  # requests that vLLM drops in this step
    answers: Any  # a future: for each worker, None, its StepResult or StepFailure
    host_ns: int


class VllmExecutor(Executor):
    """Drives vLLM's workers with headway's own block tables and chunks. For use by one thread.

    core: vLLM's EngineCore. Its scheduler never runs; its executor does the work.
    """

    def __init__(
        self,
        core: Any,
        traits: Traits,
        grammars: GrammarCompiler,
        adapters: Sequence[Adapter] = (),
    ) -> None:
        self.traits = traits
        self._core, self._grammars = core, grammars
        self._sequences = Sequences(grammars, grammars.vocab, adapters)
        context: int = core.vllm_config.model_config.max_model_len
        self._builder = StepBuilder(self._sequences, grammars.vocab, context)
        self._finished: set[str] = set()  # requests that vLLM must drop in the next step
        self._flights: dict[int, _StepInFlight] = {}
        self._dead = False
        self._tell: Callable[[str], object] = lambda cause: None
        core.model_executor.register_failure_callback(self._die)

    def _die(self) -> None:
        """Called by a thread of vLLM, seconds after a worker has died."""
        self._dead = True
        self._tell(DEAD)

    @property
    def _is_dead(self) -> bool:
        return self._dead or getattr(self._core.model_executor, "is_failed", False)

    def on_failure(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        if self._dead:
            tell(DEAD)

    def compile(self, grammar: Grammar) -> None:
        """As Executor.compile. The first grammar reads the tokenizer."""
        self._grammars.compile(grammar)

    def submit(self, batch: Batch) -> int:
        """Send a step of at least one row to the workers and return its ticket.

        Raises EngineDownError if a worker has died.
        """
        began = perf_counter_ns()
        for sequence in batch.ended:
            if id := self._sequences.end(sequence):
                self._finished.add(id)
        for begun in batch.begun:
            self._sequences.begin(begun)
        if self._is_dead:
            raise EngineDownError(DEAD)
        step = self._builder.build(batch, set(self._finished))
        host_ns = perf_counter_ns() - began
        answers = self._core.model_executor.collective_rpc(
            "headway_step", args=(step.scheduled, step.notes), non_block=True
        )
        finished = frozenset(step.scheduled.finished_req_ids)
        self._flights[batch.step] = _StepInFlight(len(batch.rows), step, finished, answers, host_ns)
        return batch.step

    def collect(self, ticket: int) -> Output:
        """Wait for a step and return its tokens, log-probabilities and errors by row.

        Raises EngineError if a worker could not compute it, EngineDownError if a worker has died.
        """
        flight = self._flights.pop(ticket)
        try:
            answers = flight.answers.result()
        except Exception as error:
            if self._is_dead:
                raise EngineDownError(DEAD) from error
            raise
        self._finished -= flight.finished  # if the step failed, the next one names them again
        for answer in answers:
            if isinstance(answer, StepFailure):
                raise EngineError(answer.error)
        return _read(flight, next(answer for answer in answers if answer is not None))

    def close(self) -> None:
        """End vLLM's workers."""
        self._core.shutdown()


def _read(flight: _StepInFlight, result: StepResult) -> Output:
    """Convert a worker's result to headway's Output."""
    step, output, scores = flight.step, result.output, result.scores
    at, errors = output.req_id_to_index, dict(step.errors)
    for i, id in step.ids.items():
        if id in result.not_finite:
            errors.setdefault(i, NOT_FINITE)
    tokens: list[tuple[int, ...]] = [()] * flight.rows
    logprobs: dict[int, tuple[Logprob, ...]] = {}
    for i, held in step.sampled.items():
        if i in errors:
            continue
        tokens[i] = tuple(output.sampled_token_ids[at[held.id]])
        assert len(tokens[i]) == 1, "a row that samples has one token"
        if (count := held.begun.sampling.logprobs) >= 0:
            logprobs[i] = (_logprob(output.logprobs, at[held.id], count),)
    prompts: dict[int, Logprobs] = {
        i: _columns(scores[id]) for i, id in step.ids.items() if id in scores and i not in errors
    }
    return Output(tuple(tokens), logprobs, errors, prompts, flight.host_ns)


def _logprob(lists: Any, row: int, count: int) -> Logprob:
    """A row's Logprob with `count` of the likeliest tokens. In vLLM's lists the sampled token comes
    first, then as many of the likeliest as any row asked for."""
    ids = lists.logprob_token_ids[row][1 : count + 1].tolist()
    values = lists.logprobs[row].tolist()
    return Logprob(values[0], tuple(zip(ids, values[1 : count + 1], strict=True)))


def _columns(scores: PromptScores) -> LogprobColumns:
    ids, values = scores.ids[:, 1:].astype("int32"), scores.values.astype("float64")
    return LogprobColumns(
        values[:, 0].tobytes(), ids.tobytes(), values[:, 1:].tobytes(), ids.shape[1]
    )
