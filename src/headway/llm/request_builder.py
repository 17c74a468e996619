"""RequestBuilder: turn a prompt and its options into requests for the engine."""

import itertools
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.core.request import NEVER, Request
from headway.engine import Executor
from headway.errors import PromptError, RefusedError, SettingError, did_you_mean
from headway.executor.grammars.grammar_check import grammar_problem
from headway.llm.options import Options
from headway.text.text_stream import TextStream
from headway.text.tokenizer import Message, Tokenizer

Prompt = str | Sequence[int]  # a text, or token ids
Ask = Prompt | Sequence[Message]  # or a chat
DEFAULT_TOKENS = 256  # most generated tokens, if the caller gives no limit
COMPILE_SECONDS = 10.0  # most time to check a grammar; only its own caller waits


class RequestBuilder:
    """Check options, tokenize prompts, number requests and give them seeds.

    Any number of threads may share one builder.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        eos: frozenset[int],
        folder: Path,
        executor: Executor,
        seed: int,
        adapters: Collection[str] = (),
    ) -> None:
        """eos: the token ids that end the model's answers. folder: the tokenizer's, for grammars.

        executor: refuses what it cannot do, and compiles a grammar before the first step that uses
        it. seed: for drawing the seeds of requests that have none. adapters: their names.
        """
        self.tokenizer, self.eos, self._folder = tokenizer, eos, folder
        self._executor, self._adapters = executor, adapters
        self._ids = itertools.count()
        self._random = random.Random(seed)

    def check(self, options: Options) -> None:
        """Refuse options that cannot be obeyed, whatever the prompt.

        Raises SettingError or PromptError, and GrammarCheckError if the check of a grammar was cut
        off. The first grammar takes a second longer, to start a process that reads the tokenizer.
        """
        if not isinstance(options, Options):
            raise SettingError(f"options must be Options, not {type(options).__name__}")
        if problem := options.sampling(0, self.eos, self.tokenizer).problem():
            raise SettingError(problem)
        if options.adapter and options.adapter not in self._adapters:
            near = did_you_mean(options.adapter, self._adapters)
            raise SettingError(f"there is no adapter {options.adapter!r}{near}")
        scores = options.logprobs, options.prompt_logprobs
        wanted = *scores, options.grammar, options.temperature
        if refusal := self._executor.traits.refusal(*wanted):
            raise SettingError(refusal)
        TextStream(self.tokenizer.decode, options.stop)  # raises for an empty stop string
        if options.grammar:
            if problem := grammar_problem(options.grammar, self._folder, COMPILE_SECONDS):
                raise SettingError(problem)
            self._executor.compile(options.grammar)  # here, not in a step that requests share

    def fitting(self, prompt: Ask, options: Options, capacity: int) -> tuple[int, ...]:
        """As `encode`, but a text that cannot fit however it is tokenized is not tokenized: it
        raises RefusedError. capacity: tokens that one sequence may hold."""
        longest = 0 if options.truncate else self.tokenizer.longest  # truncated: only its end stays
        if longest and isinstance(prompt, str) and len(prompt) > longest * capacity:
            why = f"the prompt's {len(prompt)} characters cannot fit"
            raise RefusedError(f"{why}: a request may hold {capacity} tokens", NEVER)
        return self.encode(prompt)

    def encode(self, prompt: Ask) -> tuple[int, ...]:
        """Token ids of a text, a chat, or any iterable of ids. Raises PromptError for an id that is
        not a plain int in the model's vocabulary, and for what is none of these."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        ids = tuple(elements(prompt))
        if ids and isinstance(ids[0], Mapping):
            return self.tokenizer.chat(ids)
        vocab = self.tokenizer.vocab
        for id in ids:
            if type(id) is not int or not 0 <= id < vocab:
                raise PromptError(f"the prompt has token {id!r}; the model has 0 to {vocab - 1}")
        return ids

    def chat(self, messages: Iterable[Message]) -> tuple[int, ...]:
        """Token ids of a chat. Raises PromptError."""
        return self.tokenizer.chat(elements(messages))

    def build(
        self, prompt: tuple[int, ...], options: Options, capacity: int, now: int
    ) -> list[Request]:
        """One request for each of the n choices. The other requests share the first one's blocks.

        capacity: tokens that one sequence may hold. now: nanoseconds of the engine's clock.
        """
        prompt = prompt[-options.truncate :]
        most = options.max_tokens
        if most is None:
            most = max(1, min(DEFAULT_TOKENS, capacity - len(prompt)))
        sampling = options.sampling(self._random.getrandbits(62), self.eos, self.tokenizer)
        expected = min(options.expected_tokens, most)
        first = Request(
            self._next_id(),
            prompt,
            most,
            now,
            sampling=sampling,
            expected=expected,
            adapter=options.adapter,
        )
        return [first, *(first.sibling(self._next_id(), i) for i in range(1, options.n))]

    def pooled(self, prompt: tuple[int, ...], pooling: str, now: int) -> Request:
        """A request for a prompt's vector."""
        return Request(self._next_id(), prompt, 0, now, pooling=pooling)

    def empty(self, now: int) -> Request:
        """A stand-in for a request that was refused before it was built."""
        return Request(self._next_id(), (), 0, now)

    def _next_id(self) -> str:
        return f"r{next(self._ids)}"


def elements(given: Any) -> list[Any]:
    """The elements of an iterable. Arrays, and numbers of NumPy's types, become plain ones. Raises
    PromptError for a mapping and for bytes, whose elements are no prompts."""
    plain = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(plain, Iterable) or isinstance(
        given, Mapping | bytes | bytearray | memoryview
    ):
        kind = type(given).__name__
        raise PromptError(f"a prompt is a text, token ids or a list of messages, not {kind}")
    return [each.tolist() if hasattr(each, "tolist") else each for each in plain]


def options_of(given: Iterable[Options]) -> list[Options]:
    """The options of several prompts as a list. Raises SettingError for what is none."""
    found: list[Any] = [given]
    if isinstance(given, Iterable) and not isinstance(given, Mapping):
        found = list(given)
    for each in found:
        if not isinstance(each, Options):
            raise SettingError(f"options must be Options, not {type(each).__name__}")
    return found
