"""uvicorn's HTTP protocol with bounds: on what is sent before anybody has looked at a key, and on
how long it takes. One object per connection.
"""

import asyncio
from math import inf

import httptools
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from headway.core.request import NEVER
from headway.server.config.sections.connections import ConnectionSettings
from headway.server.config.sections.durations import SECOND
from headway.server.intake.retry_after import SOON, jittered
from headway.server.listening.connections import Connections, Stage
from headway.server.protocol.chunks import compact
from headway.server.protocol.problem import Problem

PIPELINED = 8  # requests that wait on one connection for the answer to the one before
FRAMING = 16  # bytes of chunks' sizes for each byte of a body, at most
LINGER = 2.0  # seconds for a refusal to be read, while what still comes is thrown away
GRACE = 2.0  # seconds for the application to say that a body is late, before it is said here
UNREAD = 10.0  # seconds for the rest of a body that was answered before it had come
UNSENT = 60.0  # seconds that the rest of an answer has, where idle_time is shorter


class BoundedProtocol(HttpToolsProtocol):
    """A connections.Connection.

    crowded: answers in place of the application where too many are being answered.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        settings: ConnectionSettings,
        crowd: Connections,
        crowded: ASGIApp,
        descriptor: int,
        address: str,
    ) -> None:
        super().__init__(config, state, {})
        self.descriptor, self.address = descriptor, address
        self._settings, self._crowd, self._crowded = settings, crowd, crowded
        self._header_time = _seconds(settings.header_time)
        self._in_header = True  # or before it
        self._begun = False  # something of it has come
        self._raw = 0  # bytes of an unfinished header; in a body, of its framing
        self._named = 0  # bytes of the header's fields
        self._came = 0  # bytes of the body in what has just been read
        self._ended = False  # whether a request has ended in it
        self._problem: Problem | None = None  # why it was refused
        self._deaf = False  # whatever comes is thrown away
        self.due = self._in(self._header_time)
        crowd.enter(self, self.loop.time())

    # -- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._deaf:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._crowd.leave(self)

    def make_room(self) -> None:
        """For another connection. Nobody waits for an answer on this one."""
        if self._is_coming:
            said, code = "too many connections", "too_many_connections"
            self._refuse(Problem(503, said, code=code, retry=jittered(SOON)))
        self._crowd.leave(self)
        self._deaf = True
        if not self.transport:  # connection_made sees to it
            return
        if self.transport.get_write_buffer_size():  # which nobody takes
            self.transport.abort()
        else:
            self.transport.close()

    def expire(self) -> None:
        """It did not get further in time."""
        if self._deaf or not self.transport or self.transport.is_closing():
            self._end()
        elif self._is_coming:
            self._refuse(Problem(408, "the body did not come in time", code="body_late"))
        elif self._in_header and self._begun:
            self._refuse(Problem(408, "the header did not come in time", code="header_late"))
        else:
            self._end()

    @property
    def _is_coming(self) -> bool:
        """The body, for which somebody waits."""
        return not self._in_header and not self.cycle.response_complete

    def _end(self) -> None:
        self._crowd.leave(self)
        self._deaf = True
        if self.transport:
            self.transport.abort()

    # -- what comes

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        if self._in_header and not self._begun:
            self._begun = True
            if not self.cycle or self.cycle.response_complete:
                self.due = self._in(self._header_time)
        self._came, self._ended = 0, False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # to nothing that is spoken here
            self.cycle.keep_alive, self._deaf = False, True
        except httptools.HttpParserError:
            self._refuse(self._problem or Problem(400, "this is not HTTP", code="not_http"))
        else:
            self._weigh(len(data))

    def _weigh(self, size: int) -> None:
        """The parser keeps what belongs to an unfinished field, so bytes are counted as they come:
        of a header all of them, of a body those that are not its own."""
        most = self._settings.header_bytes + self._settings.target_bytes
        if not self._in_header:
            self._raw = max(0, self._raw + size - (1 + FRAMING) * self._came)
            if self._raw > most + FRAMING * 1_024:
                self._refuse(Problem(400, "the body's chunks are mostly empty", code="not_http"))
        elif not self._ended:  # else it is not known how much of it is the next one's
            self._raw += size
            if self._raw > most:
                self._refuse(self._too_large())

    # -- the parser's callbacks; whatever they raise ends the parsing

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun, self._named = True, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._settings.target_bytes:
            most = self._settings.target_bytes
            self._stop(Problem(414, f"the path has more than {most} bytes", code="path_too_long"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_header:  # a trailer, which nobody reads
            return
        self._named += len(name) + len(value)
        most = self._settings.header_fields
        if self._named > self._settings.header_bytes:
            self._stop(self._too_large())
        if len(self.headers) >= most:
            said = f"the header has more than {most} fields"
            self._stop(Problem(431, said, code="header_too_large"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            self._stop(Problem(400, "too many requests at once", code="not_http"))
        serves = self._crowd.serves(self)
        self.app = self.config.loaded_app if serves else self._crowded
        super().on_headers_complete()
        self._in_header, self._raw = False, 0
        self.due = self._in(_seconds(self._settings.body_time) + GRACE)
        if serves:
            self._crowd.move(self, Stage.COMING, self.loop.time())
        else:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._came += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_header, self._begun, self._raw, self._ended = True, False, 0, True
        if self.cycle.response_complete:
            self._rest()
        elif self.app is not self._crowded:
            self.due = inf
            self._crowd.move(self, Stage.BUSY, self.loop.time())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # `due` is in its place
        if self.cycle.response_complete:
            self._rest()

    def _rest(self) -> None:
        """Nobody waits for anything."""
        if self._deaf:
            return
        self._crowd.move(self, Stage.QUIET, self.loop.time())
        idle = _seconds(self._settings.idle_time)
        if not self._in_header:  # a body that nobody has read to its end
            self.due = min(self.due, self._in(UNREAD))
        elif self._begun:
            self.due = self._in(self._header_time)
        else:
            unsent = self.transport.get_write_buffer_size()
            self.due = self._in(max(idle, UNSENT) if unsent else idle)

    # -- saying no

    def _too_large(self) -> Problem:
        said = f"the header has more than {self._settings.header_bytes} bytes"
        return Problem(431, said, code="header_too_large")

    def _stop(self, problem: Problem) -> None:
        self._problem = problem
        raise problem

    def _refuse(self, problem: Problem) -> None:
        """Nothing more is read. Who waits for an answer before this one has none."""
        self._deaf = True
        self._crowd.move(self, Stage.QUIET, self.loop.time())
        self.due = self._in(LINGER)
        if cycle := self.cycle:
            answering = not cycle.response_complete
            if answering and (cycle.response_started or self.pipeline):
                self.transport.abort()
                return
            cycle.disconnected = True  # the application hears that its client has gone
            cycle.message_event.set()
        self.pipeline.clear()
        self.flow.resume_reading()
        said = compact(problem.body).encode()
        head = [
            STATUS_LINE[problem.status],
            *[f"{name}: {value}\r\n".encode() for name, value in problem.headers.items()],
            b"content-type: application/json\r\ncontent-length: %d\r\n" % len(said),
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join([*head, said]))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _in(self, seconds: float) -> float:
        return self.loop.time() + seconds


def _seconds(time: int) -> float:
    return inf if time == NEVER else time / SECOND
