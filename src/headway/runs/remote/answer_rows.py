"""Turns what a client saw of a request into rows: a RequestRow as in a run, and a ClientRow."""

from dataclasses import dataclass
from itertools import pairwise

from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.runs.remote.answer_stream import AnswerStream, error_text, tokens_of
from headway.runs.remote.client_row import ClientRow
from headway.runs.remote.connection import Exchange
from headway.runs.remote.offer import Offer

OK, TOO_LATE, REFUSALS = 200, 408, (429, 503)


@dataclass(frozen=True, slots=True)
class Seen:
    """How a request ended. Times on the client's clock."""

    exchange: Exchange  # of the last attempt
    due: int
    sent: int
    ended: int
    attempts: int
    broken: str = ""  # why the connection ended before the answer; empty: it did not
    left: bool = False  # the caller left
    cut: bool = False  # the run ended first

    @property
    def is_whole(self) -> bool:
        """Whether the whole answer came. What happens after a stream's own end does not matter."""
        stream = self.exchange.stream
        ended = stream.done or not (self.broken or self.cut)
        return self.exchange.status == OK and ended and stream.is_whole


def rows_of(
    offer: Offer, seen: Seen, budget: Budget, began: int, prompt: int
) -> tuple[RequestRow, ClientRow]:
    """Both rows of a request, with times counted from the beginning of the run.

    prompt: tokens of the prompt, used if the server does not count them.

    A client cannot see the engine's accounts (queue, device time, preemptions).
    """
    request, stream = offer.request, seen.exchange.stream
    times, finish = stream.times, _finish(seen)
    whole = finish in (Finish.STOP, Finish.LENGTH)
    ended = stream.last if whole else seen.ended
    generated = tokens_of(stream.usage, "completion_tokens")
    if generated is None:
        generated = len(times)
    first, last = _first_and_last(stream, ended)
    spoke = bool(times) or (whole and generated > 0)
    details = stream.usage.get("prompt_tokens_details")
    cached = tokens_of(details, "cached_tokens") if isinstance(details, dict) else None
    row = RequestRow(
        id=request.id,
        lane=request.lane,
        budget=budget,
        finish=finish,
        arrived=seen.due - began,
        first_scheduled=NEVER,
        first_token=first - began if spoke else NEVER,
        last_token=last - began if spoke else NEVER,
        finished=ended - began,
        prompt=tokens_of(stream.usage, "prompt_tokens") or prompt,
        generated=generated,
        cached=cached or 0,
        discarded=0,
        preemptions=0,
        nanoseconds=0,
        tenant=request.tenant,
    )
    client = ClientRow(
        id=request.id,
        lag=seen.sent - seen.due,
        attempts=seen.attempts,
        status=seen.exchange.status,
        error=_error(seen, finish),
        asked=request.max_tokens,
        left=seen.left,
        gaps=tuple(b - a for a, b in pairwise(times)),
    )
    return row, client


def _first_and_last(stream: AnswerStream, ended: int) -> tuple[int, int]:
    """The times of the first and the last token.

    A token may have no text, such as a part of a character. So the finish reason's time is that of
    the last token, and an answer without text has both times at its end. If all text came in one
    piece, that piece's time is used for both.
    """
    times = stream.times
    if not times:
        return ended, ended
    return times[0], (len(times) > 1 and stream.finished) or times[-1]


def _finish(seen: Seen) -> Finish:
    exchange = seen.exchange
    if seen.left:
        return Finish.CANCELLED
    if seen.is_whole:
        return Finish.STOP if exchange.stream.finish == "stop" else Finish.LENGTH
    if seen.cut or exchange.status == TOO_LATE:
        return Finish.EXPIRED
    return Finish.REFUSED if exchange.status in REFUSALS else Finish.ERROR


def _error(seen: Seen, finish: Finish) -> str:
    """What went wrong, in one line; empty: nothing did."""
    exchange = seen.exchange
    if finish in (Finish.STOP, Finish.LENGTH, Finish.CANCELLED):
        return ""
    if seen.cut:
        return "the run was over"
    if seen.broken or exchange.stream.error:
        return seen.broken or exchange.stream.error
    if said := error_text(exchange.body):
        return said
    if exchange.status != OK:
        return f"status {exchange.status}"
    if exchange.stream.done:
        return "the answer is empty"
    return "the stream ended without an end" if exchange.streams else "the answer is no stream"
