"""Exchange: one request and its answer, for code that cannot afford the cost of ASGI messages."""

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakMethod, ref

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

EXCHANGE = "headway.exchange"  # in the extensions of a request's scope
Header = tuple[bytes, bytes]


class Memory:
    """What was learned from the header of a connection's latest request. The next request mostly
    has the same header."""

    __slots__ = ("headers", "learned")

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.learned: Any = None  # set by the code that answers; None while headers is empty


class Exchange:
    """Direct access to uvicorn's request: its body, its client's disconnect, its answer.

    It refers to the request weakly. The request's scope refers back to it, and only the garbage
    collector would free such a cycle.
    """

    __slots__ = ("_cycle", "_more_time", "gone", "memory")

    def __init__(
        self,
        cycle: RequestResponseCycle,
        memory: Memory,
        more_time: Callable[[], object],
    ) -> None:
        """memory, more_time: the connection's. more_time is a method, referred to weakly, too."""
        self._cycle, self.memory, self._more_time = ref(cycle), memory, WeakMethod(more_time)
        self.gone: Callable[[], object] | None = None  # called once if the client disconnects

    @property
    def body(self) -> bytes | None:
        """The whole body; it can still be received. None: it has not all come, or the client has
        disconnected, or the answer has begun."""
        cycle = self._cycle()
        if cycle is None or cycle.more_body or cycle.waiting_for_100_continue:
            return None
        return None if cycle.disconnected or cycle.response_started else bytes(cycle.body)

    def end(self) -> None:
        """Tell the application that the client has disconnected, and call `gone`. uvicorn tells
        only the connection's latest request, which may wait behind this one."""
        if cycle := self._cycle():
            cycle.disconnected = True
            cycle.message_event.set()
        if gone := self.gone:
            self.gone = None
            gone()

    def allow_more_time(self) -> None:
        """Let the rest of the body take as long again as a whole body may."""
        if allow := self._more_time():
            allow()

    def cut(self) -> None:
        """Close the connection in the middle of the answer, whatever its client has still to read.
        uvicorn takes it for a client that has disconnected, and logs no error."""
        if cycle := self._cycle():
            cycle.disconnected = True
            cycle.transport.abort()

    async def answer(self, status: int, headers: Iterable[Header], body: bytes) -> None:
        """Send the whole answer in one write. Does nothing if the client has disconnected.

        headers: valid headers, including content-length.
        """
        cycle = self._cycle()
        if cycle is None:
            return
        cycle.flow.resume_reading()  # a large body may have paused reading
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += name, b": ", value, b"\r\n"
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += b"\r\n", body
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
