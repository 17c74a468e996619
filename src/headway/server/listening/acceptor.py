"""Acceptor: accepts one listening socket's connections, as fast as the connection table allows."""

import asyncio
import logging
import socket
from functools import partial

from headway.server.listening.bounded_protocol import BoundedProtocol
from headway.server.listening.connections import ConnectionTable

QUIET = 60.0  # seconds before an accept error is logged again

log = logging.getLogger("headway.server")


class Acceptor:
    """Accepts a few connections per turn of the loop, so that open connections get turns too.

    make_protocol: creates a connection's protocol from its descriptor and its client's address.
    """

    def __init__(
        self,
        listening: socket.socket,
        connections: ConnectionTable,
        make_protocol: "partial[BoundedProtocol]",
    ) -> None:
        self._listening, self._connections = listening, connections
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._logged_at = -QUIET
        self._is_reading = self._is_closed = False
        listening.setblocking(False)
        self.resume()

    def resume(self) -> None:
        """Start accepting again. Does nothing if it already accepts or is closed."""
        if not self._is_reading and not self._is_closed:
            self._loop.add_reader(self._listening, self._accept)
            self._is_reading = True

    def close(self) -> None:
        """Stop accepting for good."""
        self._pause()
        self._is_closed = True

    async def wait_closed(self) -> None:
        """Nothing to wait for. uvicorn awaits this after close(), which does everything."""

    def _pause(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._listening)
            self._is_reading = False

    def _accept(self) -> None:
        for _ in range(self._connections.accept_most):
            if delay := self._connections.accept_delay(self._loop.time()):
                self._pause()
                self._loop.call_later(delay, self.resume)
                return
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors or memory; HttpServer.on_tick resumes
                self._connections.evict_oldest(self._loop.time())
                self._pause()
                return self._log(error)
            descriptor, host = accepted.fileno(), str(address[0]) if address else ""
            if not self._connections.admits_connection(descriptor, host):
                accepted.close()
                continue
            task = self._loop.create_task(
                self._connect(accepted, self._make_protocol(descriptor, host))
            )
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket, protocol: BoundedProtocol) -> None:
        try:
            accepted.setblocking(False)
            # asyncio sets this only if the socket's protocol is named; create_server leaves it 0.
            # Without it the first token waits up to 40 ms for the client to acknowledge the head.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError:  # the client has disconnected
            self._connections.remove(protocol)
            accepted.close()

    def _log(self, error: OSError) -> None:
        if self._loop.time() - self._logged_at >= QUIET:
            self._logged_at = self._loop.time()
            log.warning("cannot accept connections: %s", error.strerror)
