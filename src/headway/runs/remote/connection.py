"""An HTTP/1.1 connection with one request at a time (Connection), and its answer (Exchange).

The clock is read as soon as bytes come, before they are parsed.
"""

import asyncio

import httptools

from headway.core.request import NEVER
from headway.live.clock import WallClock
from headway.runs.remote.answer_stream import AnswerStream

BODY = 1 << 23  # the most bytes kept of an answer that is not a stream
EVENTS = b"text/event-stream"
AFTER_DONE = 0.1  # seconds that a stream has to end its body after [DONE]
INTERIM = frozenset(range(100, 200)) - {101}  # statuses that come before the answer's own


class Broken(Exception):
    """The connection ended before the answer did. fresh: no status of an answer had come."""

    def __init__(self, reason: str, fresh: bool) -> None:
        super().__init__(reason)
        self.fresh = fresh


class Left(Exception):
    """The caller has left before the answer ended."""


class Exchange:
    """The answer to one request as it comes."""

    def __init__(self, leaves_after: int = NEVER, keeps: bool = False) -> None:
        """leaves_after: pieces of text after which the caller leaves. keeps: keep the text."""
        self.status = 0  # 0 until the answer's head has come
        self.headers: dict[bytes, bytes] = {}
        self.stream = AnswerStream(keeps)
        self.body = b""  # of an answer that is not a stream
        self.leaves_after = leaves_after
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def streams(self) -> bool:
        return self.headers.get(b"content-type", b"").startswith(EVENTS)

    def take(self, now: int, data: bytes) -> None:
        """Take bytes of the body. now: when they came."""
        if not self.streams:
            self.body += data[: BODY - len(self.body)]
            return
        self.stream.feed(now, data)
        self.leave_if_due()

    def leave_if_due(self) -> None:
        """Leave if as many pieces have come as this caller waits for."""
        if len(self.stream.times) >= self.leaves_after and not self.ended.done():
            self.ended.set_exception(Left())


class Connection(asyncio.Protocol):
    """A connection that serves one request at a time, and is then free for the next."""

    def __init__(self) -> None:
        self.clock = WallClock()
        self.is_open = False
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._now = 0
        self._parser = httptools.HttpResponseParser(self)

    async def ask(self, request: bytes, exchange: Exchange) -> None:
        """Send the request and wait until its answer has ended. Raises Broken or Left."""
        assert self._transport and self._exchange is None
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        exchange.leave_if_due()
        try:
            await exchange.ended
        finally:
            if (
                self._exchange is not None
            ):  # the caller has left: bytes of this answer may still come
                self.close()

    def close(self) -> None:
        """Close the connection at once, and drop what is under way."""
        self.is_open = False
        self._exchange = None
        if self._transport:
            self._transport.abort()

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        self._now = self.clock.now()
        if self._exchange is None:  # nothing was asked
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is no HTTP: {error}")
        except httptools.HttpParserUpgrade:  # that request ended with status 101
            self.close()
        if self._exchange and self._exchange.stream.done:  # most servers end the body separately
            loop = asyncio.get_running_loop()
            loop.call_later(AFTER_DONE, self._stop_waiting, self._exchange)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        exchange = self._exchange
        if exchange and not error and exchange.status and self._ends_by_closing(exchange):
            self.on_message_complete()
        else:
            self._fail(f"the connection broke: {error}" if error else "the server hung up")

    @staticmethod
    def _ends_by_closing(exchange: Exchange) -> bool:
        return not {b"content-length", b"transfer-encoding"} & exchange.headers.keys()

    def _stop_waiting(self, exchange: Exchange) -> None:
        """Finish an answer that said [DONE] but whose body has not ended, and close the connection:
        no further request can use it."""
        if self._exchange is exchange:
            self._finish()
            self.close()

    def _finish(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange and not exchange.ended.done():
            exchange.stream.end(self._now)
            exchange.ended.set_result(None)

    def _fail(self, reason: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange and not exchange.ended.done():
            exchange.ended.set_exception(Broken(reason, not exchange.status))
        self.close()

    # -- the parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._exchange:
            self._exchange.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._exchange:
            self._exchange.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self._exchange:
            self._exchange.take(self._now, data)

    def on_message_complete(self) -> None:
        if self._exchange and self._exchange.status in INTERIM:  # its answer is still to come
            self._exchange.status, self._exchange.headers = 0, {}
            return
        self._finish()
        if not self._parser.should_keep_alive():
            self.close()
