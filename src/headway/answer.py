"""What a caller asks and hears: options in, deltas and completions out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.batch import Event, Logprob
from headway.core.grammar import Grammar
from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish, Request
from headway.core.sampling import Sampling
from headway.errors import EngineError, HeadwayError, PromptError, RefusedError, SettingError
from headway.executor.torch.sampling.logprobs import LogprobColumns
from headway.text import TextStream, Tokenizer

FAILED = Finish.ERROR, Finish.REFUSED, Finish.CANCELLED, Finish.EXPIRED


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
    stop: str | tuple[str, ...] = ()  # the text ends before the first, once min_tokens were said
    stop_tokens: frozenset[int] = frozenset()  # beside the model's own ends
    ignore_eos: bool = False  # the model's own ends do not end it
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # by token id
    bad_words: str | tuple[str, ...] = ()  # never said, whether or not a space comes before
    n: int = 1  # answers to each prompt; they share its computation
    truncate: int = 0  # keep so many of the prompt's last tokens; 0: all
    echo: bool = False  # the text begins with the prompt
    logprobs: int = -1  # -1: none; n: of each token and of the n likeliest
    prompt_logprobs: int = -1  # likewise of the prompt's tokens, from the second on
    grammar: Grammar = Grammar()  # what the answer must look like

    def sampling(
        self,
        seed: int,
        eos: frozenset[int],
        words: Tokenizer,
        bad_words: tuple[tuple[int, ...], ...] | None = None,
    ) -> Sampling:
        """Of the first choice. seed: where the caller gave none; eos: the model's own ends;
        bad_words: their spellings, where they are known."""
        for token in (*self.logit_bias, *self.stop_tokens):
            if not 0 <= token < words.vocab:
                raise PromptError(f"token {token} is none of the model's 0 to {words.vocab - 1}")
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

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):  # else it would be taken letter by letter
            object.__setattr__(self, "stop", (self.stop,))
        if isinstance(self.bad_words, str):
            object.__setattr__(self, "bad_words", (self.bad_words,))
        if self.n < 1 or self.truncate < 0:
            raise SettingError(
                f"n must be 1 or more and truncate 0 or more, not {self.n} and {self.truncate}"
            )
        if self.grammar and self.ignore_eos:
            raise SettingError(
                "an answer with a grammar ends with the model's own end: leave out ignore_eos"
            )


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new of an answer."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish = Finish.NOT_YET


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer, and what it cost; or as much of it as there is, and why there is no more."""

    text: str
    tokens: tuple[int, ...]  # generated; a stop token is the last of them, and not in the text
    finish: Finish
    prompt: tuple[int, ...]
    row: RequestRow  # its account: times in nanoseconds, tokens, cached tokens
    choice: int = 0  # which of the n
    logprobs: tuple[Logprob, ...] = field(default=(), repr=False)
    prompt_logprobs: tuple[Logprob, ...] = field(default=(), repr=False)
    error: HeadwayError | None = None  # why it is not whole; finish is "refused" or "error" then


class Answer:
    """One request while it is being answered: events in, text out."""

    def __init__(self, request: Request, options: Options, tokenizer: Tokenizer) -> None:
        assert not isinstance(options.stop, str)
        self.request, self.options = request, options
        self.text = TextStream(tokenizer.decode, options.stop, options.min_tokens)
        self.tokens: list[int] = []
        self.logprobs, self.prompt_logprobs = LogprobColumns(), LogprobColumns()
        self.finish = Finish.NOT_YET
        self.stopped = False  # a stop string was seen; the engine is told once
        self.error: HeadwayError | None = None

    def take(self, event: Event) -> Delta:
        """What is new of it; the request has ended where the delta has a finish. Raises
        RefusedError or EngineError where it has ended without its answer."""
        if event.finish in FAILED:
            self.finish = event.finish
            raise _error_of(event)
        new = () if self.stopped else event.tokens
        ended = event.finish is Finish.STOP and new and new[-1] in self.request.sampling.stop_tokens
        said = self.text.push(new[:-1] if ended else new)
        if self.text.kept:
            left = len(self.tokens) + len(new) - self.text.kept
            new, self.stopped = new[: len(new) - left] if left else new, True
        self.tokens += new
        if event.logprobs:
            self.logprobs.extend(event.logprobs[: len(new)])
        if event.prompt_logprobs:
            self.prompt_logprobs.extend(event.prompt_logprobs)
        if event.finish:
            said += self.text.end()
            self.finish = Finish.STOP if self.stopped else event.finish
        return Delta(said, new, self.finish)

    def completion(self, row: RequestRow | None, before: str = "") -> Completion:
        """When it has ended. row: the ledger's, if it got so far; before: the text of an echo."""
        request = self.request
        return Completion(
            before + self.text.text,
            tuple(self.tokens),
            self.finish,
            request.prompt,
            row or row_without_times(request, self.finish, len(self.tokens)),
            request.sampling.choice,
            tuple(self.logprobs),
            tuple(self.prompt_logprobs),
            self.error,
        )


def _error_of(event: Event) -> HeadwayError:
    if event.finish is Finish.REFUSED:
        return RefusedError(event.error, NEVER)
    return EngineError(event.error or f"the request was {event.finish}")


def row_without_times(request: Request, finish: Finish, generated: int = 0) -> RequestRow:
    """The account of a request of which the ledger has none: no time was spent that is known."""
    return RequestRow(
        id=request.id,
        lane=request.lane,
        budget=Budget(),
        finish=finish,
        arrived=request.arrived,
        first_scheduled=NEVER,
        first_token=NEVER,
        last_token=NEVER,
        finished=request.arrived,
        prompt=len(request.prompt),
        generated=generated,
        cached=0,
        discarded=0,
        preemptions=0,
        nanoseconds=0,
    )
