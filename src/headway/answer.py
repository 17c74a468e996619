"""Answer: one request while it is being answered; Delta and Completion: what its caller gets."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.batch import Event, Logprob
from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish, Request
from headway.errors import DeadlineError, EngineError, HeadwayError, RefusedError, SettingError
from headway.executor.logprobs import LogprobColumns
from headway.options import Options
from headway.text_stream import TextStream
from headway.tokenizer import Tokenizer

FAILED = Finish.ERROR, Finish.UNSATISFIABLE, Finish.REFUSED, Finish.CANCELLED, Finish.EXPIRED


@dataclass(frozen=True, slots=True)
class Delta:
    """The part of an answer that is new."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish = Finish.NOT_YET


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished answer and its account; if it failed, the text up to then and the error."""

    text: str
    tokens: tuple[int, ...]  # generated ids, a final stop token included, whose text is not
    finish: Finish
    prompt: tuple[int, ...]
    row: RequestRow  # of the ledger: times in nanoseconds, tokens, cached tokens
    choice: int = 0  # which of the n, from 0
    logprobs: tuple[Logprob, ...] = field(default=(), repr=False)
    prompt_logprobs: tuple[Logprob, ...] = field(default=(), repr=False)
    error: HeadwayError | None = None  # why it is incomplete, where finish is "refused" or "error"


class Answer:
    """One request while it is being answered: events in, deltas out."""

    def __init__(self, request: Request, options: Options, tokenizer: Tokenizer) -> None:
        assert not isinstance(options.stop, str)
        self.request, self.options = request, options
        self.text = TextStream(tokenizer.decode, options.stop, options.min_tokens)
        self.tokens: list[int] = []
        self._unread: list[int] = []  # the last of them, which have no text yet
        self.logprobs, self.prompt_logprobs = LogprobColumns(), LogprobColumns()
        self.vector = b""  # what was wanted of the prompt: float32, little-endian
        self.finish = Finish.NOT_YET
        self.stopped = False  # a stop string was found; the engine is told once
        self.error: HeadwayError | None = None

    def take(self, event: Event) -> Delta:
        """Add an event; return what is new. The delta of the last event has a finish.

        Raises RefusedError, DeadlineError, SettingError or EngineError if it has ended without its
        answer.
        """
        if event.finish and event.finish in FAILED:
            self.finish = event.finish
            raise _error_of(event)
        new = () if self.stopped else event.tokens
        ended = event.finish is Finish.STOP and new and new[-1] in self.request.sampling.stop_tokens
        text = self._read(new[:-1] if ended else new)
        if self.text.kept:
            left = len(self.tokens) + len(new) - self.text.kept
            new, self.stopped = new[: len(new) - left] if left else new, True
        self._add(new, event)
        if event.finish:
            text += self.text.end()
            self.finish = Finish.STOP if self.text.kept else event.finish
        return Delta(text, new, self.finish)

    def keep(self, event: Event) -> None:
        """As `take`, but without a text yet, which most of its time is spent on. For events before
        the last, where no stop string is looked for."""
        assert not (event.finish or self.text.seeks)
        self._unread += event.tokens
        self._add(event.tokens, event)

    def _add(self, new: Sequence[int], event: Event) -> None:
        """These of its tokens, and what came with them."""
        self.tokens += new
        if event.logprobs:
            self.logprobs.extend(event.logprobs[: len(new)])
        if event.prompt_logprobs:
            self.prompt_logprobs.extend(event.prompt_logprobs)
        self.vector += event.vector

    def _read(self, new: Sequence[int] = ()) -> str:
        """The text of these tokens, behind that of those before."""
        unread, self._unread = self._unread, []
        return self.text.push((*unread, *new))

    def completion(self, row: RequestRow | None, before: str = "") -> Completion:
        """The whole answer, once it has ended. row: the ledger's, None if it has none; before: the
        prompt's text, for an echo."""
        request = self.request
        if self._unread:  # it has failed
            self._read()
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
    if event.finish is Finish.EXPIRED:
        return DeadlineError(event.error)
    if event.finish is Finish.UNSATISFIABLE:
        return SettingError(event.error)
    return EngineError(event.error or f"the request was {event.finish}")


def row_without_times(request: Request, finish: Finish, generated: int = 0) -> RequestRow:
    """A row for a request that the ledger has none of, as a refused one: no times are known."""
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
