"""Answer: one request while it is being answered; Delta and Completion: what the caller gets."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.batch import Event, Logprob
from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish, Request
from headway.errors import DeadlineError, EngineError, HeadwayError, RefusedError, SettingError
from headway.executor.logprobs import LogprobColumns
from headway.llm.options import Options
from headway.text.text_stream import TextStream
from headway.text.tokenizer import Tokenizer

FAILED = Finish.ERROR, Finish.UNSATISFIABLE, Finish.REFUSED, Finish.CANCELLED, Finish.EXPIRED


@dataclass(frozen=True, slots=True)
class Delta:
    """The new part of an answer. finish: how the answer ended; empty: it goes on."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish = Finish.NOT_YET


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished answer and its ledger row; if it failed, the text until then and the error.

    tokens: generated ids, with the final stop token, which `text` leaves out. row: of the ledger:
    times in nanoseconds, tokens, cached tokens. choice: the number of this choice among the n, from
    0. error: why the request failed; None: it did not.
    """

    text: str
    tokens: tuple[int, ...]
    finish: Finish
    prompt: tuple[int, ...]
    row: RequestRow
    choice: int = 0
    logprobs: tuple[Logprob, ...] = field(default=(), repr=False)
    prompt_logprobs: tuple[Logprob, ...] = field(default=(), repr=False)
    error: HeadwayError | None = None


class Answer:
    """One request while it is being answered: events in, deltas out."""

    def __init__(self, request: Request, options: Options, tokenizer: Tokenizer) -> None:
        assert not isinstance(options.stop, str)
        self.request, self.options = request, options
        after = request.prompt if request.max_tokens else ()  # else there is no text
        self.text = TextStream(tokenizer.decode, options.stop, options.min_tokens, after)
        self.tokens: list[int] = []
        self._unread: list[int] = []  # the latest tokens, which have no text yet
        self.logprobs, self.prompt_logprobs = LogprobColumns(), LogprobColumns()
        self.vector = b""  # the prompt's vector, if wanted: float32, little-endian
        self.finish = Finish.NOT_YET
        self.stopped = False  # whether a stop string was found; the engine is told once
        self.error: HeadwayError | None = None

    def take(self, event: Event) -> Delta:
        """Add an event and return the new part. The delta of the last event has a finish.

        Raises RefusedError, DeadlineError, SettingError or EngineError if the request has failed.
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
        """Add an event like `take`, but leave decoding, the slow part, for later. Only for events
        before the last, if there are no stop strings."""
        assert not (event.finish or self.text.seeks)
        self._unread += event.tokens
        self._add(event.tokens, event)

    def _add(self, new: Sequence[int], event: Event) -> None:
        """Add these of the event's tokens, and the event's log-probabilities and vector."""
        self.tokens += new
        if event.logprobs:
            self.logprobs.extend(event.logprobs[: len(new)])
        if event.prompt_logprobs:
            self.prompt_logprobs.extend(event.prompt_logprobs)
        self.vector += event.vector

    def _read(self, new: Sequence[int] = ()) -> str:
        """The new text after decoding the unread tokens and these."""
        unread, self._unread = self._unread, []
        return self.text.push((*unread, *new))

    def completion(self, row: RequestRow | None, before: str = "") -> Completion:
        """The whole answer, once it has ended. row: from the ledger, None if it has none. before:
        the prompt's text, for an echo."""
        request = self.request
        if self._unread:  # the request has failed
            self._read()
        return Completion(
            before + self.text.text,
            tuple(self.tokens),
            self.finish,
            tuple(request.prompt),
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
    """A row without times, for a request that has none in the ledger, such as a refused one."""
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
