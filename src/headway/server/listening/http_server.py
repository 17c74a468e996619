"""uvicorn's server on a socket of ours: who is let in, and what those hear for whom there is no
room."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.config.sections.server import ServerSettings
from headway.server.http.errors import answer
from headway.server.intake.retry_after import SOON, jittered
from headway.server.listening.bounded_protocol import BoundedProtocol
from headway.server.listening.connections import Connections
from headway.server.protocol.problem import Problem

LAST_WORDS = 5  # seconds for connections to end, once nothing is being answered
PROBES = ("/health", "/ready")  # answered however many others there are
QUIET = 60.0  # seconds between two lines about the same trouble

log = logging.getLogger("headway.server")


class Web(uvicorn.Server):
    """Its signals are the caller's. descriptors: how many the process may have."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, descriptors: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=LAST_WORDS,
            )
        )
        self.crowd = Connections(settings.connections, descriptors)
        self._settings = settings

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """In place of asyncio's way to accept, which has no bound and logs each failure."""
        make = partial(
            BoundedProtocol,
            self.config,
            self.server_state,
            self._settings.connections,
            self.crowd,
            crowded(self.config.loaded_app),
        )
        self._accepting = [Accepting(each, self.crowd, make) for each in sockets or ()]
        self.servers = self._accepting  # type: ignore[assignment]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        self.crowd.sweep(asyncio.get_running_loop().time())
        for each in self._accepting:
            each.resume()
        return await super().on_tick(counter)


class Accepting:
    """What comes to one listening socket. Few at once, so that those who are there have turns.

    make: a protocol for a descriptor and an address.
    """

    def __init__(
        self, listening: socket.socket, crowd: Connections, make: "partial[BoundedProtocol]"
    ) -> None:
        self._listening, self._crowd, self._make = listening, crowd, make
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._complained = -QUIET
        self._reads = self._closed = False
        listening.setblocking(False)
        self.resume()

    def resume(self) -> None:
        if not self._reads and not self._closed:
            self._loop.add_reader(self._listening, self._accept)
            self._reads = True

    def close(self) -> None:
        self._pause()
        self._closed = True

    async def wait_closed(self) -> None:
        """It is closed at once."""

    def _pause(self) -> None:
        if self._reads:
            self._loop.remove_reader(self._listening)
            self._reads = False

    def _accept(self) -> None:
        for _ in range(self._crowd.batch):
            if wait := self._crowd.wait(self._loop.time()):
                self._pause()
                self._loop.call_later(wait, self.resume)
                return
            try:
                made, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor, or no memory: once more at the next tick
                self._crowd.make_room(self._loop.time())
                self._pause()
                return self._complain(error)
            host = str(address[0]) if address else ""
            if not self._crowd.admits(made.fileno(), host):
                made.close()
                continue
            task = self._loop.create_task(self._begin(made, self._make(made.fileno(), host)))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, made: socket.socket, protocol: BoundedProtocol) -> None:
        try:
            made.setblocking(False)
            await self._loop.connect_accepted_socket(lambda: protocol, made)
        except OSError:  # it has gone
            self._crowd.leave(protocol)
            made.close()

    def _complain(self, error: OSError) -> None:
        if self._loop.time() - self._complained >= QUIET:
            self._complained = self._loop.time()
            log.warning("cannot accept connections: %s", error.strerror)


def crowded(app: ASGIApp) -> ASGIApp:
    """In place of the application, where too many are being answered."""

    async def only_probes(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            return await app(scope, receive, send)
        said = "too many requests are being answered"
        problem = Problem(503, said, code="too_many_connections", retry=jittered(SOON))
        await answer(problem)(scope, receive, send)

    return only_probes
