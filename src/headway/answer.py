"""What a caller asks and hears: options in, deltas and completions out."""

from dataclasses import dataclass, field

from headway.core.batch import Event, Logprob
from headway.core.ledger import RequestRow
from headway.core.request import Finish, Request
from headway.errors import PromptError
from headway.text import TextStream, Tokenizer


@dataclass(frozen=True, slots=True)
class Options:
    """How to answer. Sampling fields as in core.request.Sampling."""

    max_tokens: int | None = None  # None: 256, or what is left of the context if that is less
    min_tokens: int = 0
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None  # None: drawn from the LLM's own seed
    stop: str | tuple[str, ...] = ()  # strings; the text ends before the first of them
    stop_tokens: frozenset[int] = frozenset()  # beside the model's own ends
    ignore_eos: bool = False  # the model's own ends do not end it
    logprobs: int = -1  # -1: none; n: of each token and of the n likeliest

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):  # else it would be taken letter by letter
            object.__setattr__(self, "stop", (self.stop,))


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new of an answer."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish = Finish.NOT_YET


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer, and what it cost."""

    text: str
    tokens: tuple[int, ...]  # generated; a stop token is the last of them, and not in the text
    finish: Finish
    prompt: tuple[int, ...]
    row: RequestRow  # its account: times in nanoseconds, tokens, cached tokens
    logprobs: tuple[Logprob, ...] = field(default=(), repr=False)


class Answer:
    """One request while it is being answered: events in, text out."""

    def __init__(self, request: Request, options: Options, tokenizer: Tokenizer) -> None:
        assert not isinstance(options.stop, str)
        self.request = request
        self.text = TextStream(tokenizer.decode, options.stop)
        self.tokens: list[int] = []
        self.logprobs: list[Logprob] = []
        self.finish = Finish.NOT_YET
        self.stopped = False  # a stop string was seen; the engine is told once

    def take(self, event: Event) -> Delta:
        """What is new of it; the request has ended where the delta has a finish."""
        if event.finish in (Finish.ERROR, Finish.REFUSED, Finish.CANCELLED):
            raise PromptError(f"the request ended: {event.error or event.finish}")
        new = () if self.stopped else event.tokens
        ended = event.finish is Finish.STOP and new and new[-1] in self.request.sampling.stop_tokens
        said = self.text.push(new[:-1] if ended else new)
        if self.text.kept:
            left = len(self.tokens) + len(new) - self.text.kept
            new, self.stopped = new[: len(new) - left] if left else new, True
        self.tokens += new
        self.logprobs += event.logprobs[: len(new)]
        if event.finish:
            said += self.text.end()
            self.finish = Finish.STOP if self.stopped else event.finish
        return Delta(said, new, self.finish)
