"""BoundedProtocol: uvicorn's HTTP protocol with bounds on what a client sends before its key is
read, in size and in time. One object per connection."""

import asyncio
from math import inf
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headway.server.config.sections.connections import ConnectionSettings
from headway.server.http.exchange import EXCHANGE, Exchange, Memory
from headway.server.listening.connections import ANSWERING, IDLE, RECEIVING, ConnectionTable
from headway.server.listening.deadline import UNREAD, Deadline, seconds
from headway.server.listening.flow import OwnFlow
from headway.server.listening.refusal import repeated, send_refusal, unavailable
from headway.server.listening.upgrade import feed
from headway.server.protocol.problem import Problem

PROBES = b"/health", b"/ready"  # answered even when there are too many connections
PIPELINED = 8  # requests that may wait on one connection behind the one being answered
FRAMING = 16  # the most bytes of chunk framing per byte of a body
LINGER = 2.0  # seconds for the client to read a refusal, while further input is discarded
GRACE = 2.0  # seconds beyond body_time, so that the application can answer 408 itself
REST = 10.0  # seconds for the rest of a body whose request was answered before it all came


class BoundedProtocol(HttpToolsProtocol):
    """One connection: a connections.Connection."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        settings: ConnectionSettings,
        connections: ConnectionTable,
        descriptor: int,
        address: str,
    ) -> None:
        super().__init__(config, state, {})
        self.descriptor, self.address = descriptor, address
        self._settings, self._connections = settings, connections
        self._header_time = seconds(settings.header_time)
        self._in_header = True  # true also before the header's first byte
        self._header_begun = False
        self._pending_bytes = 0  # of an unfinished header; within a body, of its framing
        self._field_bytes = 0  # bytes of the header's names and values
        self._body_bytes = 0  # bytes of the body in the data being parsed
        self._message_ended = False  # whether a request ended in that data
        self._is_admitted = True  # False: only a probe is answered, and then the connection ends
        self._problem: Problem | None = None  # why the parser was stopped
        self._discards = False  # whether all further input is discarded
        self._exchange: Exchange | None = None  # the request being answered
        self._memory = Memory()
        self._deadline = Deadline(self.loop, self._header_time)
        connections.add(self, self.loop.time())

    # -- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = OwnFlow(transport)
        if self._discards:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.remove(self)
        if self._exchange:
            self._exchange.end()

    def evict(self) -> None:
        """Close to make room for another connection. No answer is being computed or sent here."""
        if self._awaits_body:
            self._refuse(unavailable("too many connections", "too_many_connections"))
        self._connections.remove(self)
        self._discards = True
        if not self.transport:  # connection_made will close it
            return
        if self.transport.get_write_buffer_size():  # the client is not reading
            self.transport.abort()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """The server ends. A request whose body has not all come is refused."""
        if self._awaits_body and not self.pipeline:
            self._refuse(unavailable("the server is shutting down", "draining"))
        else:
            super().shutdown()

    @property
    def deadline(self) -> float:
        """The loop's time by which the client must have sent or read something."""
        return self._deadline.at

    def expire(self) -> None:
        """Close because the deadline has passed, unless the client is reading its answer slowly. A
        client that was sending a request gets a 408."""
        kept = self.transport.get_write_buffer_size() if self.transport else 0
        if not self._discards and self._deadline.extend(kept):
            return
        if self._discards or not self.transport or self.transport.is_closing():
            self._abort()
        elif self._awaits_body:
            self._refuse(Problem(408, "the body did not come in time", code="body_late"))
        elif self._in_header and self._header_begun:
            self._refuse(Problem(408, "the header did not come in time", code="header_late"))
        else:
            self._abort()

    @property
    def _awaits_body(self) -> bool:
        """Whether the application is waiting for the rest of a body."""
        return not (self._discards or self._in_header or self.cycle.response_complete)

    def _abort(self) -> None:
        self._connections.remove(self)
        self._discards = True
        if self.transport:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deadline.pause(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._deadline.resume()

    # -- input

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        if self._in_header and not self._header_begun:
            self._header_begun = True
            if not self.cycle or self.cycle.response_complete:
                self._deadline.set(self._header_time)
        self._body_bytes, self._message_ended = 0, False
        try:
            feed(self, data)
        except httptools.HttpParserError:
            self._refuse(self._problem or Problem(400, "this is not HTTP", code="not_http"))
        else:
            self._count(len(data))

    def _count(self, size: int) -> None:
        """Bound what the parser buffers of an unfinished field.

        The parser's callbacks do not see those bytes, so all bytes of a header and the framing
        bytes of a body are counted as they come.
        """
        most = self._settings.header_bytes + self._settings.target_bytes
        if not self._in_header:
            self._pending_bytes = max(
                0, self._pending_bytes + size - (1 + FRAMING) * self._body_bytes
            )
            if self._pending_bytes > most + FRAMING * 1_024:
                self._refuse(Problem(400, "the body's chunks are mostly empty", code="not_http"))
        elif not self._message_ended:  # else part of the data may belong to the next request
            self._pending_bytes += size
            if self._pending_bytes > most:
                self._refuse(self._too_large())

    # -- the parser's callbacks; an exception in a callback stops the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_begun, self._field_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > (most := self._settings.target_bytes):
            self._stop_parsing(
                Problem(414, f"the path has more than {most} bytes", code="path_too_long")
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_header:  # a trailer: ignored
            return
        self._field_bytes += len(name) + len(value)
        if self._field_bytes > self._settings.header_bytes:
            self._stop_parsing(self._too_large())
        if len(self.headers) >= (most := self._settings.header_fields):
            message = f"the header has more than {most} fields"
            self._stop_parsing(Problem(431, message, code="header_too_large"))
        name, value = name.lower(), value.strip(b" \t")  # blanks around a value do not count
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():  # `feed` parses it again
            return
        if len(self.pipeline) >= PIPELINED:
            self._stop_parsing(Problem(400, "too many requests at once", code="not_http"))
        if len(dict(self.headers)) < len(self.headers) and (name := repeated(self.headers)):
            message = f"the header has {name} more than once"
            self._stop_parsing(Problem(400, message, name, "repeated_header"))
        self._is_admitted = self._connections.admits_request(self)
        if not self._is_admitted and self.url.partition(b"?")[0] not in PROBES:
            message = "too many requests are being answered"
            self._stop_parsing(unavailable(message, "too_many_connections"))
        super().on_headers_complete()
        self._in_header, self._pending_bytes = False, 0
        self.allow_more_time()
        if self._is_admitted:
            self._connections.set_stage(self, RECEIVING, self.loop.time())
        else:
            self.cycle.keep_alive = False

    def allow_more_time(self) -> None:
        """From now on the rest of the body may take as long as a whole one."""
        if not self._in_header:
            self._deadline.set(seconds(self._settings.body_time) + GRACE)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._exchange = Exchange(cycle, self._memory, self.allow_more_time)
        # ASGI defines extensions as dicts; uvicorn itself sets none.
        cycle.scope["extensions"] = {EXCHANGE: self._exchange}  # type: ignore[dict-item]

        async def run(*messages: Any) -> None:
            try:
                await app(*messages)
            finally:
                if not cycle.response_complete:  # uvicorn closes, once the client has read all
                    self._deadline.set(UNREAD)

        super()._start_asgi_task(cycle, run)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._in_header, self._header_begun, self._pending_bytes = True, False, 0
        self._message_ended = True
        if self.cycle.response_complete:
            self._become_idle()
        elif self._is_admitted:
            self._deadline.set(inf)
            self._connections.set_stage(self, ANSWERING, self.loop.time())

    def on_response_complete(self) -> None:
        """What uvicorn's own does, with `deadline` in place of its keep-alive timer."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        if self.cycle.response_complete:
            self._become_idle()

    def _become_idle(self) -> None:
        """Mark the connection IDLE: every request so far has been answered."""
        if self._discards:
            return
        self._connections.set_stage(self, IDLE, self.loop.time())
        idle = seconds(self._settings.idle_time)
        if not self._in_header:  # the rest of a body that was answered early
            self._deadline.shorten(REST)
        elif self._header_begun:
            self._deadline.set(self._header_time)
        else:
            self._deadline.answered(idle, self.transport.get_write_buffer_size())

    # -- refusals

    def _too_large(self) -> Problem:
        message = f"the header has more than {self._settings.header_bytes} bytes"
        return Problem(431, message, code="header_too_large")

    def _stop_parsing(self, problem: Problem) -> None:
        self._problem = problem
        raise problem

    def _refuse(self, problem: Problem) -> None:
        """Answer with the problem and close. Further input is discarded.

        If an answer has begun, or pipelined requests wait, the connection is aborted instead.
        """
        self._discards = True
        self._connections.set_stage(self, IDLE, self.loop.time())
        self._deadline.set(LINGER)
        if cycle := self.cycle:
            answering = not cycle.response_complete
            if answering and (cycle.response_started or self.pipeline):
                self.transport.abort()
                return
            if self._exchange:
                self._exchange.end()
        self.pipeline.clear()
        self.flow.resume_reading()
        send_refusal(self.transport, problem)
