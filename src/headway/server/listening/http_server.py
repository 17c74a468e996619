"""HttpServer: uvicorn's server with our own accepting, and a 503 when connections are too many."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from headway.server.config.sections.server import ServerSettings
from headway.server.http.direct_send import DirectSend
from headway.server.http.forwarded import Forwarded
from headway.server.listening.acceptor import Acceptor
from headway.server.listening.bounded_protocol import BoundedProtocol
from headway.server.listening.connections import ConnectionTable
from headway.server.listening.unread import Unread

CLOSING_TIME = 5  # seconds for connections to close, once nothing is being answered


class HttpServer(uvicorn.Server):
    """Serves the application on sockets that the caller opened. The caller handles signals.

    descriptors: how many the process may have.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, descriptors: int) -> None:
        super().__init__(
            uvicorn.Config(
                Forwarded(DirectSend(Unread(app))),
                interface="asgi3",
                lifespan="off",
                proxy_headers=False,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSING_TIME,
            )
        )
        self.connections = ConnectionTable(settings.connections, descriptors)
        self._settings = settings

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Capture no signals: the owner of this server handles them."""
        return nullcontext()

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Start the acceptors, in place of asyncio's own accepting, which has no bound and logs
        every failure."""
        make_protocol = partial(
            BoundedProtocol,
            self.config,
            self.server_state,
            self._settings.connections,
            self.connections,
        )
        self._acceptors = [
            Acceptor(each, self.connections, make_protocol) for each in sockets or ()
        ]
        self.servers = self._acceptors  # type: ignore[assignment]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Expire overdue connections and resume accepting. uvicorn calls it ten times a second."""
        self.connections.expire_overdue(asyncio.get_running_loop().time())
        for each in self._acceptors:
            each.resume()
        return await super().on_tick(counter)
