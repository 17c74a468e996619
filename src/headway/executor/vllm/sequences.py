"""The executor's state of each sequence, from its first row until its end."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from headway.core.batch import Begun, Row
from headway.errors import SettingError, TokenizerError, first_line
from headway.executor.grammars.grammar import GrammarCompiler, Matcher
from headway.executor.vllm.adapters import Adapter
from headway.executor.vllm.sampling_params import to_sampling_params

COULD_NOT_BEGIN = "the request could not begin: "


@dataclass(slots=True)
class Held:
    """One sequence, and its request in vLLM. Each request id is used only once: a preempted
    sequence ends, and resumes as a new request."""

    id: str
    begun: Begun
    params: Any  # vLLM's SamplingParams
    lora: Any = None  # vLLM's LoRARequest
    matcher: Matcher | None = None
    known: int = 0  # number of tokens
    sent: bool = False  # whether vLLM has the request
    checked: bool = False  # no grammar, but bad words and stop tokens may ban every token
    answer: list[int] = field(default_factory=list)  # the generated tokens, for `banned`

    def extend(self, row: Row) -> None:
        """Take in a row's tokens: some may have become known since the sequence's last row."""
        end = row.start + len(row.tokens)
        if self.matcher:
            self.matcher.extend(row.start, row.tokens)
        reads = (self.matcher or self.checked) and self.begun.sampling.bad_words
        if reads and end > self.known:
            self.answer += row.tokens[self.known - end :]
        self.known = max(self.known, end)

    @property
    def generated(self) -> int:
        """The number of tokens after the prompt."""
        return self.known - self.begun.prompt

    def banned(self) -> Iterator[int]:
        """The tokens that bad words and min_tokens ban next, as vLLM applies them."""
        sampling = self.begun.sampling
        if self.generated < sampling.min_tokens:
            yield from sampling.stop_tokens
        for *before, last in sampling.bad_words:
            if not before or self.answer[-len(before) :] == before:
                yield last

    def bans_all(self, vocab: int) -> bool:
        """Whether `banned` covers the whole vocabulary."""
        return len({token for token in self.banned() if token < vocab}) == vocab


class Sequences:
    """The sequences that have begun and not ended, and why some could not begin."""

    def __init__(
        self, grammars: GrammarCompiler, vocab: int, adapters: Iterable[Adapter] = ()
    ) -> None:
        self._grammars, self._vocab = grammars, vocab
        self._adapters = {each.name: each.request() for each in adapters}
        self._numbers = count()
        self._held: dict[int, Held] = {}  # by sequence
        self._refused: dict[int, str] = {}  # by sequence: why it could not begin

    def begin(self, begun: Begun) -> None:
        """Keep what the sequence's rows need. If that fails, its rows get errors; other rows are
        not affected."""
        number = begun.sequence
        assert number not in self._held and number not in self._refused, "begun twice"
        try:
            self._held[number] = self._made(begun)
        except Exception as error:  # of any kind: other rows share the step
            known = isinstance(error, SettingError | TokenizerError)
            self._refused[number] = str(error) if known else COULD_NOT_BEGIN + first_line(error)

    def _made(self, begun: Begun) -> Held:
        for token in begun.tokens:
            if not 0 <= token < self._vocab:
                raise SettingError(f"token {token} is outside the vocabulary of {self._vocab}")
        if begun.adapter and begun.adapter not in self._adapters:
            raise SettingError(f"there is no adapter {begun.adapter!r}")
        params = to_sampling_params(begun.sampling, self._vocab)
        if len(begun.tokens) - begun.prompt >= begun.sampling.min_tokens:
            params.min_tokens = 0  # vLLM checks it before it knows which tokens were generated
        matcher = self._grammars.begin(begun) if begun.sampling.grammar else None
        id = f"{begun.sequence}.{next(self._numbers)}"
        answer = list(begun.tokens[begun.prompt :])
        lora = self._adapters.get(begun.adapter)
        bans = len(begun.sampling.stop_tokens) + len(begun.sampling.bad_words)
        checked = matcher is None and bans >= self._vocab
        return Held(
            id, begun, params, lora, matcher, len(begun.tokens), checked=checked, answer=answer
        )

    def end(self, number: int) -> str:
        """Drop a sequence. Returns the id that vLLM must drop; empty if vLLM never got it."""
        if number in self._refused:
            del self._refused[number]
            return ""
        held = self._held.pop(number)
        return held.id if held.sent else ""

    def of(self, row: Row) -> Held | None:
        """The row's sequence; None if it could not begin."""
        return self._held.get(row.sequence)

    def refusal(self, row: Row) -> str:
        """Why the row's sequence could not begin."""
        return self._refused[row.sequence]
