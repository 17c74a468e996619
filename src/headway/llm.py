"""A model behind three verbs: generate, stream, chat. The engine runs in a thread."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from secrets import token_bytes
from typing import Literal

from headway.answer import Answer, Completion, Delta, Options, row_without_times
from headway.core.batch import Event
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.policies.join import Static
from headway.core.policies.policies import Policies, usual
from headway.core.request import NEVER, Finish, Request
from headway.core.scheduler import Scheduler
from headway.engine import forgotten
from headway.errors import HeadwayError, PromptError, SettingError, UnansweredError
from headway.executor.torch.sampling.grammar_check import grammar_problem
from headway.generate_call import GenerateCall
from headway.journal.file import JournalFile, check
from headway.live.clock import date
from headway.live.engine import LiveEngine
from headway.models import EMBEDDED, display_name
from headway.text import Message, TextStream, Tokenizer

Prompt = str | Sequence[int]
Ask = Prompt | Sequence[Message]
DEFAULT_TOKENS = 256  # generated at most, where the caller did not say
COMPILING = 10.0  # seconds of it that a grammar may take: nobody else's answers wait for it


class LLM:
    """A checkpoint with its tokenizer and an engine of its own. A context manager.

    model: a local folder or a hub id; None is the embedded headway-tiny.
    dtype: "float32" or "bfloat16"; empty: as the checkpoint is stored, but float32 on a CPU
    that is slow at bfloat16. device: as torch names it; empty: cuda if there is one, else cpu.
    policies: the batching strategy; None: plan.usual(slots), as the server has it.
    slots: sequences that run at once, at most; context: tokens that one may hold, at most
    (0: what the model was made for). memory says, in a line, where the memory went.
    seed: of the requests that bring none, in the order in which they are asked.
    journal: a file, not there yet, that keeps all that the engine takes in and does, the prompts
    and answers too; `headway replay` does it again. Where it cannot be written on, it stops with a
    line in the log ("headway.journal"), and the engine goes on.
    cost: of its steps, from `headway calibrate` (tools.calibration.read(path).cost): what they take
    is then held against it, and llm.load.drift says by how much they differ.
    Raises CheckpointError and its kin, MemoryPlanError, SettingError, JournalError.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        dtype: str = "",
        device: str = "",
        policies: Policies | None = None,
        slots: int = 32,
        context: int = 0,
        block_size: int = 16,
        seed: int = 0,
        journal: str | Path | None = None,
        cost: StepCost = StepCost(),
    ) -> None:
        from headway.executor.torch.load import load
        from headway.executor.torch.memory.memory_plan import Limits
        from headway.executor.torch.runner import single_threaded

        self.policies = policies or usual(slots)
        limits = Limits.of(self.policies, slots, context, block_size)
        if journal:
            check(Path(journal), new=True)
        with single_threaded():
            loaded = load(EMBEDDED if model is None else model, limits, dtype, device)
        self.memory = loaded.plan
        self.tokenizer, self._folder = Tokenizer(loaded.folder, loaded.config.vocab), loaded.folder
        self.eos = frozenset(loaded.config.eos)
        settings = loaded.settings((Lane(max_waiting=NEVER),), self.policies, cost)
        self._rows: dict[str, RequestRow | None] = {}  # of those whose row is waited for
        self._ids = itertools.count()
        self._random = random.Random(seed)
        scheduler = Scheduler(settings, token_bytes(16))
        about = {
            "model": display_name(model),
            "dtype": loaded.dtype,
            "device": loaded.device,
            "begun": date(),
        }
        self._journal = JournalFile(Path(journal), settings, about) if journal else None
        self._compile = loaded.executor.compile
        keep = self._journal.keep if self._journal else forgotten
        self._engine = LiveEngine(scheduler, loaded.executor, keep, self._keep)

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def load(self) -> Load:
        """How things are: lines, memory, drift, as of the engine's latest step."""
        return self._engine.load

    def close(self) -> None:
        """Finish what was asked and end the engine's thread; the journal is whole then."""
        self._engine.close()
        if self._journal:
            self._journal.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Ask],
        options: Options | Sequence[Options] = Options(),
        *,
        errors: Literal["return", "raise"] = "return",
        progress: bool = True,
    ) -> list[Completion]:
        """Answer all, batched as the policies say; in the order of the prompts and their choices.

        A prompt is a text, its ids, or a chat's messages. options: one for all, or one for each.
        A request that fails leaves the others alone: its Completion has an `error` (RefusedError,
        PromptError, SettingError, GrammarCheckError or EngineError) and the text up to then.
        errors="raise": UnansweredError, once all have ended, if any has failed; it has all answers.

        A call that is wrong in itself is refused at once, and nothing is begun: options for all
        that cannot be obeyed (SettingError, PromptError, GrammarCheckError), lists of different
        lengths (PromptError), an engine that is down (EngineDownError).
        """
        if errors not in ("return", "raise"):
            raise SettingError(f'errors must be "return" or "raise", not {errors!r}')
        asked = _listed(prompts)
        if isinstance(options, Options):
            self._check(options)
            chosen = [options] * len(asked)
        else:
            chosen = list(options)
        if len(chosen) != len(asked):
            raise PromptError(f"{len(asked)} prompts came with {len(chosen)} options")
        begun: list[Answer | Completion] = []
        for prompt, each in zip(asked, chosen, strict=True):
            try:
                if each is not options:
                    self._check(each)
                begun += self._answers(self._encode(prompt), each)
            except HeadwayError as error:
                begun += self._refused(each.n, error)
        self._answer([each for each in begun if isinstance(each, Answer)], progress)
        done = [self._completion(each) if isinstance(each, Answer) else each for each in begun]
        if errors == "raise" and (failed := [each for each in done if each.error]):
            first = failed[0].error
            said = f"{len(failed)} of {len(done)} requests failed; the first: {first}"
            raise UnansweredError(said, done) from first
        return done

    def chat(
        self,
        messages: Sequence[Message],
        options: Options = Options(),
    ) -> Completion:
        """The assistant's next turn, through the model's chat template; the first of n.

        Raises what went wrong, as stream() does: there are no others that could be lost.
        """
        self._check(options)
        answers = self._answers(self.tokenizer.chat(messages), options)
        self._answer(answers, progress=False)
        done = [self._completion(each) for each in answers]
        if done[0].error:
            raise done[0].error
        return done[0]

    def stream(
        self,
        prompt: Ask,
        options: Options = Options(),
    ) -> Iterator[Delta]:
        """Deltas as they come; leaving the iterator early cancels the request.

        Raises RefusedError, PromptError, SettingError, GrammarCheckError or EngineError.
        """
        self._check(options)
        answer = self._only_answer(prompt, options)
        for event in self._engine.events(answer.request):
            yield self._hear(answer, event)

    async def astream(
        self,
        prompt: Ask,
        options: Options = Options(),
    ) -> AsyncIterator[Delta]:
        """As stream(), for asyncio; any number at once."""
        await asyncio.to_thread(self._check, options)
        answer = self._only_answer(prompt, options)
        async for event in self._engine.stream(answer.request):
            yield self._hear(answer, event)

    def _answer(self, answers: Sequence[Answer], progress: bool) -> None:
        """Until each has ended, in its own way; then their rows are there, but for an engine's that
        is down."""
        self._rows.update(dict.fromkeys([answer.request.id for answer in answers]))
        try:
            GenerateCall(self._engine, answers, self._hear, self._waits_for_groups).run(progress)
        except BaseException:
            for answer in answers:  # those that had ended too: nobody will ask for their rows
                self._rows.pop(answer.request.id, None)
            raise

    @property
    def _waits_for_groups(self) -> bool:
        """Whether the engine must be told when no more will come."""
        return isinstance(self.policies.join, Static)

    def _refused(self, choices: int, error: HeadwayError) -> list[Completion]:
        """What could not even be asked."""
        now, finish = self._engine.clock.now(), Finish.REFUSED
        made = []
        for choice in range(choices):
            request = Request(f"r{next(self._ids)}", (), 0, now)
            row = row_without_times(request, finish)
            made.append(Completion("", (), finish, (), row, choice, error=error))
        return made

    def _hear(self, answer: Answer, event: Event) -> Delta:
        before = answer.stopped
        delta = answer.take(event)
        if answer.stopped and not before:
            self._engine.stop(answer.request.id, answer.text.kept)
        return delta

    def _completion(self, answer: Answer) -> Completion:
        request = answer.request
        echo = self.tokenizer.decode(request.prompt) if answer.options.echo else ""
        return answer.completion(self._rows.pop(request.id), echo)

    def _check(self, options: Options) -> None:
        """Raises SettingError or PromptError if the options cannot be obeyed, whatever the prompt,
        and GrammarCheckError. The first grammar takes a second: a process is started for it."""
        if said := options.sampling(0, self.eos, self.tokenizer).problem():
            raise SettingError(said)
        TextStream(self.tokenizer.decode, options.stop)
        if options.grammar:
            if said := grammar_problem(options.grammar, self._folder, COMPILING):
                raise SettingError(said)
            self._compile(options.grammar)  # here, and not in a step that others are in

    def _answers(self, prompt: tuple[int, ...], options: Options) -> list[Answer]:
        """One for each choice; all but the first wait for it, and share what it has computed."""
        prompt = prompt[-options.truncate :]
        room = self._engine.load.capacity - len(prompt)
        most = options.max_tokens
        if most is None:
            most = max(1, min(DEFAULT_TOKENS, room))
        seed, now = self._random.getrandbits(62), self._engine.clock.now()
        sampling = options.sampling(seed, self.eos, self.tokenizer)
        first = Request(f"r{next(self._ids)}", prompt, most, now, sampling=sampling)
        others = [first.sibling(f"r{next(self._ids)}", each) for each in range(1, options.n)]
        return [Answer(request, options, self.tokenizer) for request in (first, *others)]

    def _only_answer(self, prompt: Ask, options: Options) -> Answer:
        """Of a stream, which has one."""
        if self._waits_for_groups:
            raise SettingError(
                "Static waits until its group is full, and a stream does not know whether more "
                "will come: use Dynamic(size, window), or generate()"
            )
        if options.n > 1 or options.echo:
            raise PromptError("a stream gives one answer and no echo: use generate()")
        return self._answers(self._encode(prompt), options)[0]

    def _encode(self, prompt: Ask) -> tuple[int, ...]:
        """Ids of a text, of a chat, or as they are; each one the model's."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if prompt and isinstance(prompt[0], dict):
            return self.tokenizer.chat(prompt)  # type: ignore[arg-type]
        ids = tuple(prompt)
        vocab = self.tokenizer.vocab
        for id in ids:
            if not isinstance(id, int) or not 0 <= id < vocab:
                raise PromptError(f"a prompt has the token {id!r}; the model has 0 to {vocab - 1}")
        return ids  # type: ignore[return-value]

    def _keep(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        self._rows.update([(row.id, row) for row in requests if row.id in self._rows])


def _listed(prompts: Prompt | Sequence[Ask]) -> list[Ask]:
    """One prompt, as text or as ids, is a list of one."""
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]
