"""Options: how a caller wants a prompt to be answered."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from operator import index
from typing import Any

from headway.core.grammar import Grammar
from headway.core.sampling import Sampling, shown
from headway.errors import PromptError, SettingError
from headway.text.tokenizer import Tokenizer

INTEGERS = (
    *("max_tokens", "min_tokens", "expected_tokens", "top_k", "seed", "n", "truncate"),
    *("logprobs", "prompt_logprobs"),
)
FLOATS = (
    *("temperature", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """How a caller wants a prompt to be answered: length, sampling, where to stop, what to return.

    max_tokens: None: 256, or the rest of the context if that is less. expected_tokens: the caller's
    estimate, for policies that look ahead; 0: unknown.
    temperature: 0: always the likeliest token. seed: None: drawn from the LLM's own seed.
    stop: the text ends before the first of these that is found after min_tokens. stop_tokens: in
    addition to the model's own. ignore_eos: the model's own do not end the answer.
    logit_bias: by token id. bad_words: never generated, with or without a leading space.
    n: answers to the prompt, which is computed once. truncate: keep only this many of the prompt's
    last tokens; 0: all. echo: the text begins with the prompt.
    logprobs: -1: none; k: of each token and of the k likeliest. prompt_logprobs: the same for the
    prompt's tokens, from the second on.
    grammar: the answer must match it. adapter: the name of the LoRA adapter that answers; empty:
    the model alone.

    These are the caller's terms (text, stop strings, several answers). `sampling` turns them into
    core.sampling.Sampling, which holds what the executor needs for one sequence. Fields of the same
    name have the same meaning.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    expected_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: str | tuple[str, ...] = ()
    n: int = 1
    truncate: int = 0
    echo: bool = False
    logprobs: int = -1
    prompt_logprobs: int = -1
    grammar: Grammar = Grammar()
    adapter: str = ""

    def sampling(
        self,
        seed: int,
        eos: frozenset[int],
        words: Tokenizer,
        bad_words: tuple[tuple[int, ...], ...] | None = None,
    ) -> Sampling:
        """The sampling of the first choice.

        seed: used if the options have none. eos: the model's own stop tokens. words: the tokenizer.
        bad_words: their token ids; None: they are computed here. Raises PromptError for a token id
        that the model does not have.
        """
        for token in (*self.logit_bias, *self.stop_tokens):
            if not 0 <= token < words.vocab:
                raise PromptError(f"the model has no token {token}, only 0 to {words.vocab - 1}")
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed if self.seed is not None else seed,
            stop_tokens=self.stop_tokens | (frozenset() if self.ignore_eos else eos),
            min_tokens=self.min_tokens,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple(sorted(self.logit_bias.items())),
            bad_words=words.spellings(self.bad_words) if bad_words is None else bad_words,
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            grammar=self.grammar,
        )

    def __repr__(self) -> str:
        """As code that makes them: without the fields that have their defaults."""
        given = list[str]()
        for each in fields(self):
            value = getattr(self, each.name)
            if value != ({} if each.default is MISSING else each.default):
                given.append(f"{each.name}={value!r}")
        return f"Options({', '.join(given)})"

    def __post_init__(self) -> None:
        for name in ("stop", "bad_words"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        for name in INTEGERS:
            if (value := getattr(self, name)) is not None or name not in ("max_tokens", "seed"):
                object.__setattr__(self, name, integer(name, value))
        for name in FLOATS:
            object.__setattr__(self, name, _plain(getattr(self, name)))
        if not isinstance(self.stop_tokens, Iterable):
            raise SettingError(f"stop_tokens must be token ids, not {shown(self.stop_tokens)}")
        tokens = frozenset([integer("a stop token", token) for token in self.stop_tokens])
        object.__setattr__(self, "stop_tokens", tokens)
        if not isinstance(self.logit_bias, Mapping):
            raise SettingError(f"logit_bias must be numbers by token, not {shown(self.logit_bias)}")
        items = self.logit_bias.items()
        bias = {integer("a token of logit_bias", token): _plain(x) for token, x in items}
        object.__setattr__(self, "logit_bias", bias)
        if not isinstance(self.adapter, str):
            raise SettingError(f"adapter must be a name or empty, not {shown(self.adapter)}")
        if not isinstance(self.grammar, Grammar):
            raise SettingError(f"grammar must be a Grammar, not {shown(self.grammar)}")
        if self.n < 1 or self.truncate < 0:
            raise SettingError(
                f"n must be 1 or more and truncate 0 or more, not {self.n} and {self.truncate}"
            )
        if self.expected_tokens < 0:
            raise SettingError(f"expected_tokens must be 0 or more, not {self.expected_tokens}")
        if self.grammar and self.ignore_eos:
            raise SettingError(
                "an answer with a grammar ends with a stop token of the model: leave out ignore_eos"
            )


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """One text or several as a tuple. Raises SettingError."""
    if isinstance(value, str):  # otherwise each letter would be a text
        return (value,)
    texts = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(each, str) for each in texts):
        raise SettingError(f"{name} must be a text or several, not {shown(value)}")
    return texts


def integer(name: str, value: Any) -> int:
    """The value as a plain int, since a journal can hold no other kind. Raises SettingError."""
    try:
        return int(index(value))
    except TypeError:
        raise SettingError(f"{name} must be an int, not {shown(value)}") from None


def _plain(value: Any) -> Any:
    """A number of NumPy's as a plain float; what is no number as it is, which Sampling refuses."""
    is_foreign = isinstance(value, Real) and not isinstance(value, int | float)
    return float(value) if is_foreign else value
