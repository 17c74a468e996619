"""What a caller asks and hears: options in, deltas and completions out."""

from dataclasses import dataclass, field

from headway.core.batch import Event, Logprob
from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish, Request
from headway.errors import EngineError, HeadwayError, RefusedError
from headway.executor.torch.sampling.logprobs import LogprobColumns
from headway.options import Options
from headway.text_stream import TextStream
from headway.tokenizer import Tokenizer

FAILED = Finish.ERROR, Finish.REFUSED, Finish.CANCELLED, Finish.EXPIRED


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
