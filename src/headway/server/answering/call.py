"""Call: one HTTP call while it is answered. Engine events go in, chunks or one JSON come out.

Everything here runs on the event loop's thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from headway.core.batch import Event
from headway.core.ledger import RequestRow
from headway.core.request import Finish, Request
from headway.errors import DrainingError, EngineDownError
from headway.live.callers import News
from headway.llm.answer import Delta
from headway.server.answering.choice import Change, Choice
from headway.server.answering.eta import Eta
from headway.server.answering.outgoing import Outgoing, Parts
from headway.server.answering.routed import Routed
from headway.server.config.sections.prices import PriceSettings
from headway.server.protocol.chunks import DONE, Chunks
from headway.server.protocol.problem import Problem
from headway.server.protocol.response import response_json
from headway.server.protocol.retry_after import SOON, jittered
from headway.server.protocol.usage import metrics, usage

UNANSWERED = frozenset(
    {Finish.REFUSED, Finish.CANCELLED, Finish.UNSATISFIABLE, Finish.ERROR, Finish.EXPIRED}
)
SLOW, DROPPED = "slow_reader", "dropped"  # dropped: a route's attempt that is not needed
SCORE_BYTES = 64  # bytes of JSON per log-probability, roughly


class CallOwner(Protocol):
    """What a running call asks of its owner, such as Admission."""

    def check_open(self) -> None:
        """Raises Problem unless the engine takes requests."""
        ...

    def refusal(self, call: "Call", reason: str) -> Problem:
        """The answer if the engine refuses one of the call's requests, with a time to retry."""
        ...

    def stop(self, id: str, keep: int) -> None:
        """End the request with this id after `keep` generated tokens."""
        ...

    def leave(self, call: "Call", open: Iterable[str]) -> None:
        """The call has ended. open: its requests still open, to be cancelled."""
        ...


class Call:
    """A live.Caller that takes the events of all its requests.

    choices: grouped by prompt, in the order of the prompts.
    """

    def __init__(
        self,
        routed: Routed,
        created: int,  # Unix seconds
        choices: Sequence[Choice],
        prices: PriceSettings,
        owner: CallOwner,
    ) -> None:
        self.routed, self.request = routed, routed.request
        self.about = routed.id, created, routed.model
        self._prices = prices
        self.choices = {each.answer.request.id: each for each in choices}
        self.rows: dict[str, RequestRow] = {}
        self.problem: Problem | None = None
        self.done = False
        self.relegated = False  # whether one of its requests was
        self.eta = Eta(self.arrived, routed.before)
        self.charged = 0  # tokens that its key was charged
        self.entered_at = 0  # when it entered its lane, nanoseconds
        self.told: dict[str, str] = {}  # further headers of its answer
        self.version = 0  # the configuration version in force when it came; 0: none
        self.accepted = True  # False: a route's judge rejected it, and there is nothing better
        self._owner = owner
        self._open = dict.fromkeys(self.choices)
        self._index = {id: index for index, id in enumerate(self.choices)}
        self._chunks = Chunks(self.request.chat, *self.about, usage=self.request.usage)
        self.out = Outgoing()

    @property
    def id(self) -> str:
        return self.routed.id

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer, as far as they are known now."""
        told = {"x-headway-lane": self.routed.lane} | self.eta.headers | self.told
        rows = [row.version for row in self.rows.values()]  # the engine knows it exactly
        if version := rows[0] if rows else self.version:
            told["x-headway-version"] = str(version)
        if self.relegated:
            told["x-headway-relegated"] = "true"
        return told | self.routed.route_headers(self.accepted) if self.routed.route else told

    @property
    def arrived(self) -> int:
        return self.routed.arrival.at

    @property
    def requests(self) -> list[Request]:
        return [each.answer.request for each in self.choices.values()]

    @property
    def unheard(self) -> list[Request]:
        """Its open requests without a token: they wait, or have just begun."""
        answers = [each.answer for id, each in self.choices.items() if id in self._open]
        return [answer.request for answer in answers if not answer.tokens]

    # -- a live.Caller

    def tell(self, news: News) -> None:
        if self.done:
            return
        try:
            if isinstance(news, EngineDownError):
                raise down(news)
            self._hear(news)
        except Problem as problem:
            self.end(problem)
        except Exception as error:
            self.end(Problem(500, f"the server has failed: {type(error).__name__}", code="fault"))
            error.add_note(f"request {self.routed.request_id!r}, answer {self.id}")
            raise

    def flush(self) -> None:
        """Wake the sending task, if there is something to send. End the call if its client has
        stopped reading the stream."""
        if self.out.flush(self.done) and not self.done:
            assert self.out.writer
            self.end(Problem(408, "the client does not read its stream", code=SLOW))
            self.out.writer.cancel()

    # -- its end

    def end(self, problem: Problem) -> None:
        """End the call early with this problem, and cancel its open requests. Does nothing if the
        call has ended."""
        if not self.done:
            self.problem = problem.with_traceback(None)  # the traceback may lead back here
            self._close()
            self.flush()

    def _close(self) -> None:
        self.done = True
        self._owner.leave(self, self._open)

    # -- for the task that answers the client

    async def wait(self) -> None:
        """Wait until there is something to take, or the call has ended."""
        await self.out.wait(self.done)

    @property
    def is_over(self) -> bool:
        """Whether the call has ended and all of its output was taken."""
        return self.done and not self.out

    def take(self) -> bytes:
        """The stream's new bytes. For a failed stream, all bytes that are ready."""
        return self.out.take_last() if self.problem else self.out.take()

    @property
    def is_long(self) -> bool:
        """Whether the JSON may be long, as with log-probabilities. It is then sent in pieces."""
        return self.request.options.logprobs >= 0 and not self.request.hides_scores

    def response(self) -> Iterator[str]:
        """The JSON of a finished answer that is not streamed, piece by piece."""
        choices = (choice.finished() for choice in self.choices.values())
        return response_json(self.request.chat, self.about, choices, self.usage(), self._metrics())

    def usage(self) -> dict[str, Any]:
        """The usage so far, each prompt once; its cached tokens once its first choice has ended."""
        known = all(each.answer.request.id in self.rows for each in self._leaders)
        return usage(*self.tokens, self.cached if known else None)

    @property
    def cached(self) -> int:
        """Prompt tokens that were found in the prefix cache."""
        rows = [self.rows.get(each.answer.request.id) for each in self._leaders]
        return sum([row.cached for row in rows if row])

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of the prompts, each once, and of the answers so far."""
        prompts = sum([len(each.answer.request.prompt) for each in self._leaders])
        return prompts, sum([len(each.answer.tokens) for each in self.choices.values()])

    @property
    def most(self) -> int:
        """The most tokens the call may use: its prompts plus all it may generate."""
        to_generate = sum([each.answer.request.max_tokens for each in self.choices.values()])
        return self.tokens[0] + to_generate

    @property
    def _leaders(self) -> list[Choice]:
        """The first choice of each prompt."""
        return [each for each in self.choices.values() if not each.leader]

    def _metrics(self) -> dict[str, float | None]:
        rows = [self.rows[id] for id in self.choices if id in self.rows]
        spent = sum([row.nanoseconds for row in rows])
        prompt, answer = self.tokens
        return metrics(rows) | self._prices.bill(prompt, self.cached, answer, spent)

    # -- events

    def _hear(self, event: Event) -> None:
        if event.relegated:
            self.relegated = True
        if event.promise:
            self.eta.hear(event.promise)
        if event.finish:
            self._open.pop(event.id, None)
            if event.finish in UNANSWERED:
                if event.finish is Finish.REFUSED:  # the engine may be draining by now
                    self._owner.check_open()
                    raise self._owner.refusal(self, event.error)
                raise _failure(event)
        choice = self.choices[event.id]
        before = choice.answer.stopped
        delta = choice.hear(event)
        if choice.answer.stopped and not before and not event.finish:
            self._owner.stop(event.id, choice.answer.text.kept)
        if self.request.stream and (delta.text or delta.tokens or delta.finish):
            self._send(self._index[event.id], choice, delta)
        if not self._open:
            if self.request.stream:
                self._send_end()
            self._close()

    def stream_whole(self) -> None:
        """Stream a finished answer that was computed whole. Its chunks are made when taken."""
        for index, choice in enumerate(self.choices.values()):
            done = choice.answer
            delta = Delta(done.text.text, tuple(done.tokens), done.finish)
            self._send(index, choice, delta, whole=True)
        self._send_end()

    def _send_end(self) -> None:
        if self.request.usage:
            self.out.put(self._chunks.usage(self.usage(), self._metrics()))
        self.out.put(DONE)

    def _send(self, index: int, choice: Choice, delta: Delta, whole: bool = False) -> None:
        so_far = self.usage() if self.request.running_usage else None
        if self.request.chat and not choice.begun:
            self.out.put(self._chunks.role(index, so_far))
        if choice.begun and not (choice.scores or delta.finish):  # nearly every token
            if delta.text:
                self.out.put(self._chunks.text(index, delta.text, usage=so_far))
            return
        echo = "" if choice.begun or choice.echo is None else choice.echo
        chunks = self._chunks_of(index, choice.changes(delta), so_far)
        if not whole and (choice.echo is None or not (echo or choice.scores)):
            for chunk in chunks:
                self.out.put(chunk)
            return
        request = choice.answer.request  # an echo's scores come before the answer's
        tokens = len(delta.tokens) + (len(request.prompt) if echo else 0)
        size = len(echo) + SCORE_BYTES * tokens * (1 + request.sampling.logprobs)
        self.out.put_parts(Parts(chunks, size, echo=bool(echo)))

    def _chunks_of(
        self, index: int, changes: Iterator[Change], so_far: dict[str, Any] | None
    ) -> Iterator[bytes]:
        for text, finish, logprobs in changes:
            if self.request.chat and finish and text:  # the last text, then the finish on its own
                yield self._chunks.text(index, text, "", logprobs, so_far)
                text, logprobs = "", None
            if text or finish or logprobs:
                yield self._chunks.text(index, text, finish, logprobs, so_far)


def down(error: EngineDownError) -> Problem:
    """The answer when the engine is gone, by a fault or because it is being replaced."""
    if isinstance(error, DrainingError):
        return Problem(503, str(error), code="draining", retry=jittered(SOON))
    return Problem(503, str(error), code="engine_down", retry=jittered(SOON))


def _failure(event: Event) -> Problem:
    """The problem for an end without an answer. A call that was cancelled on request has already
    ended, so a CANCELLED here means that the server is shutting down."""
    match event.finish:
        case Finish.CANCELLED:
            return Problem(503, "the server is shutting down", code="draining", retry=jittered(0))
        case Finish.UNSATISFIABLE:
            return Problem(400, event.error, code="unsatisfiable", final=True)
        case Finish.ERROR:
            return Problem(500, f"the engine failed: {event.error}", code="engine_error")
        case _:
            return Problem(408, event.error, code="deadline_exceeded", final=True)
