"""LLM: a model and its verbs: generate, stream, chat, embed, score, classify."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from secrets import token_bytes
from typing import Any, Literal

from headway.core.batch import Event
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.policies.join import Static
from headway.core.policies.policies import Policies, usual, whole_prompts
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.engine import forgotten
from headway.errors import HeadwayError, PromptError, SettingError, UnansweredError
from headway.executor.load import BLOCK_SIZES, TORCH, check_executor, load
from headway.executor.loaded import Loaded, settings_of
from headway.executor.precision import with_quantize
from headway.executor.tokenizer_beside import tokenizer_beside
from headway.journal.file import JournalFile, check
from headway.journal.record import Record
from headway.live.clock import date
from headway.live.engine import LiveEngine
from headway.llm.answer import Answer, Completion, Delta, row_without_times
from headway.llm.async_calls import AsyncCalls
from headway.llm.generate_call import GenerateCall
from headway.llm.offered_answers import OfferedAnswers
from headway.llm.options import Options
from headway.llm.request_builder import Ask, RequestBuilder, options_of
from headway.llm.vector_calls import VectorCalls, listed
from headway.models import EMBEDDED, display_name
from headway.text.tokenizer import Message, Tokenizer
from headway.vectors.model_card import read_card


class LLM(AsyncCalls, VectorCalls, OfferedAnswers):
    """A model, its tokenizer and an engine in a thread. A context manager. An encoder (such as
    BERT) has embed, score and classify; a decoder has all verbs but classify.

    model: a local folder or a hub id; None: the embedded headway-tiny.
    dtype: "float32" or "bfloat16"; empty: as the checkpoint is stored, but float32 on a CPU
    that is slow at bfloat16. quantize: "int8" keeps the weights of products in 8 bits, only with
    headway's own executor on a CPU. device: a torch device; empty: cuda if there is one, else cpu.
    policies: the batching strategy; None: the server's default.
    slots: the most sequences that run at once. context: the most tokens that a sequence may hold
    (0: the model's context). `memory` says how the memory is used.
    seed: the source of seeds for requests that bring none, in the order of the requests.
    journal: a new file that records everything the engine takes in and does, including prompts and
    answers, for `headway replay`. If the file can no longer be written, recording stops with a
    line in the log ("headway.journal") and the engine goes on.
    cost: the cost model of a step, from `headway calibrate`: read it with
    costing.calibration.read_cost_file(path).cost. llm.load.drift then compares the steps with it.
    block_size: tokens of a KV block; 0: 16, or 32 with vLLM.
    executor: "torch", headway's own, or "vllm" (docs/executors.md). vllm: arguments of vLLM's
    engine, by its own names. adapters: folders or hub ids of LoRA adapters, by the names used in
    Options.adapter; only with vLLM.

    Raises CheckpointError or a subclass, MemoryPlanError, SettingError, JournalError.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        dtype: str = "",
        quantize: str = "",
        device: str = "",
        policies: Policies | None = None,
        slots: int = 32,
        context: int = 0,
        block_size: int = 0,
        seed: int = 0,
        journal: str | Path | None = None,
        cost: StepCost = StepCost(),
        executor: str = TORCH,
        vllm: Mapping[str, Any] = {},
        adapters: Mapping[str, str] = {},
    ) -> None:
        from headway.executor.torch.memory.memory_plan import Limits
        from headway.executor.torch.threads import single_threaded

        self.policies = policies or usual(slots)
        precision = with_quantize(dtype, quantize)
        check_executor(executor, vllm, adapters, precision)
        limits = Limits.of(self.policies, slots, context, block_size or BLOCK_SIZES[executor])
        if journal:
            check(Path(journal), new=True)
        source = EMBEDDED if model is None else model
        with single_threaded(), tokenizer_beside(executor, source) as reading:
            loaded = load(executor, source, limits, precision, device, vllm, adapters)
        self.memory, self._executor = loaded.plan, loaded.executor
        self._traits = loaded.executor.traits
        if policies is None and not self._traits.splits_prompts:
            self.policies = whole_prompts(slots)
        self._closing = ExitStack()  # closes in reverse order, and goes on if a callback raises
        self._closing.callback(self._executor.close)
        # Ledger rows by request id, only for requests whose caller waits for the row.
        self._rows: dict[str, RequestRow | None] = {}
        try:
            read = reading.of(loaded.folder) if reading else None
            self.tokenizer = Tokenizer(loaded.folder, loaded.vocab, read)
            self._begin(loaded, model, seed, journal, cost, adapters)
        except BaseException:
            self._closing.close()
            raise

    def _begin(
        self,
        loaded: Loaded,
        model: str | Path | None,
        seed: int,
        journal: str | Path | None,
        cost: StepCost,
        adapters: Collection[str],
    ) -> None:
        """Start the engine on the loaded model."""
        self.card = read_card(loaded.folder)
        self._builder = RequestBuilder(
            self.tokenizer,
            loaded.eos,
            loaded.folder,
            loaded.executor,
            seed,
            adapters,
        )
        settings = settings_of(loaded, (Lane(max_waiting=NEVER),), self.policies, cost)
        scheduler = Scheduler(settings, token_bytes(16))
        about = {
            "model": display_name(model),
            "dtype": loaded.dtype,
            "device": loaded.device,
            "executor": loaded.executor.traits.kind,
            "begun": date(),
        }
        keep: Callable[[Record], object] = forgotten
        if journal:
            keep = self._closing.enter_context(JournalFile(Path(journal), settings, about)).keep
        self._engine = LiveEngine(scheduler, loaded.executor, keep, self._keep_rows)
        self._closing.callback(self._engine.close)

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def load(self) -> Load:
        """The engine's load (waiting lines, memory, drift) as of its latest step."""
        return self._engine.load

    def close(self) -> None:
        """Finish every request, then end the engine's thread, the journal and the executor."""
        self._closing.close()

    def generate(
        self,
        prompts: Ask | Iterable[Ask],
        options: Options | Iterable[Options] = Options(),
        *,
        errors: Literal["return", "raise"] = "return",
        progress: bool = True,
    ) -> list[Completion]:
        """Answer every prompt, batched by the policies. Returns them in order of prompt and choice.

        A prompt is a text, token ids, or a chat's messages. options: one for all, or one for each.
        If a request fails, the other requests are still answered. The failed Completion has an
        `error` (RefusedError, PromptError, SettingError, GrammarCheckError or EngineError) and the
        text until then. errors="raise": once all have ended, raise UnansweredError if any failed;
        it carries all completions. progress: show a bar on a terminal.

        An error in the call itself is raised before anything begins: common options that cannot be
        obeyed (SettingError, PromptError, GrammarCheckError), a number of options that differs
        from that of the prompts (PromptError), an engine that is down (EngineDownError).
        """
        if errors not in ("return", "raise"):
            raise SettingError(f'errors must be "return" or "raise", not {errors!r}')
        inputs = listed(prompts)
        if isinstance(options, Options):
            self._builder.check(options)
            chosen = [options] * len(inputs)
        else:
            chosen = options_of(options)
        if len(chosen) != len(inputs):
            raise PromptError(f"{len(inputs)} prompts came with {len(chosen)} options")
        begun: list[Answer | Completion] = []
        for prompt, each in zip(inputs, chosen, strict=True):
            try:
                if each is not options:
                    self._builder.check(each)
                begun += self._answers(self._fitting(prompt, each), each)
            except HeadwayError as error:
                begun += self._refused(each.n, error)
        self._run([each for each in begun if isinstance(each, Answer)], progress)
        done = [self._completed(each) if isinstance(each, Answer) else each for each in begun]
        if errors == "raise" and (failed := [each for each in done if each.error]):
            first = failed[0].error
            message = f"{len(failed)} of {len(done)} requests failed; the first: {first}"
            raise UnansweredError(message, done) from first
        return done

    def chat(
        self,
        messages: Sequence[Message],
        options: Options = Options(),
    ) -> Completion:
        """Generate the assistant's next turn with the model's chat template. Of n choices, returns
        the first. Raises the same errors as stream().
        """
        self._builder.check(options)
        answers = self._answers(self._builder.chat(messages), options)
        self._run(answers, progress=False)
        done = [self._completed(each) for each in answers]
        if done[0].error:
            raise done[0].error
        return done[0]

    def stream(self, prompt: Ask, options: Options = Options()) -> Iterator[Delta]:
        """Yield deltas as they are generated. Leaving the iterator early cancels the request.

        Raises RefusedError, PromptError, SettingError, GrammarCheckError or EngineError.
        """
        self._builder.check(options)
        answer = self._stream_answer(prompt, options)
        for event in self._engine.events(answer.request):
            yield self._hear(answer, event)

    def _run(self, answers: Sequence[Answer], progress: bool) -> None:
        """Return when every answer has ended. Each then has its row, unless the engine is down."""
        self._rows.update(dict.fromkeys([answer.request.id for answer in answers]))
        try:
            GenerateCall(self._engine, answers, self._hear, self._waits_for_groups).run(progress)
        except BaseException:
            for answer in answers:  # ended ones too: no caller will take their rows
                self._rows.pop(answer.request.id, None)
            raise

    @property
    def _waits_for_groups(self) -> bool:
        """Whether the engine must be told when no more requests will come."""
        return isinstance(self.policies.join, Static)

    def _refused(self, choices: int, error: HeadwayError) -> list[Completion]:
        """The completions for a prompt that could not become requests."""
        now, finish = self._engine.clock.now(), Finish.REFUSED
        completions = []
        for choice in range(choices):
            row = row_without_times(self._builder.empty(now), finish)
            completions.append(Completion("", (), finish, (), row, choice, error=error))
        return completions

    def _hear(self, answer: Answer, event: Event) -> Delta:
        """Add an event to its answer, and tell the engine when a stop string is found."""
        before = answer.stopped
        delta = answer.take(event)
        if answer.stopped and not before:
            self._engine.stop(answer.request.id, answer.text.kept)
        return delta

    def _completed(self, answer: Answer) -> Completion:
        request = answer.request
        echo = self.tokenizer.decode(request.prompt) if answer.options.echo else ""
        return answer.completion(self._rows.pop(request.id), echo)

    def _answers(self, prompt: tuple[int, ...], options: Options) -> list[Answer]:
        """One answer for each of the n choices."""
        now = self._engine.clock.now()
        requests = self._builder.build(prompt, options, self._engine.load.capacity, now)
        return [Answer(request, options, self.tokenizer) for request in requests]

    def _stream_answer(self, prompt: Ask, options: Options) -> Answer:
        """The single answer of a stream."""
        if self._waits_for_groups:
            raise SettingError(
                "Static waits until its group is full, and a stream does not know whether more "
                "will come: use Dynamic(size, window), or generate()"
            )
        if options.n > 1 or options.echo:
            raise PromptError("a stream gives one answer and no echo: use generate()")
        return self._answers(self._fitting(prompt, options), options)[0]

    def _fitting(self, prompt: Ask, options: Options) -> tuple[int, ...]:
        """Token ids of a prompt that may fit. Raises RefusedError and PromptError."""
        return self._builder.fitting(prompt, options, self._engine.load.capacity)

    def _keep_rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        self._rows.update([(row.id, row) for row in requests if row.id in self._rows])
