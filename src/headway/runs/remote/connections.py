"""The connections to one server (Connections), one for each concurrent request."""

import asyncio
import errno
import os
import re
import ssl

from headway.runs.remote.client_row import OWN_FAULT
from headway.runs.remote.connection import Broken, Connection, Exchange
from headway.runs.remote.target import Target

PATIENCE = 10.0  # seconds to open a connection
AT_ONCE = 0.005  # seconds within which a reused connection shows that it was closed
NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL)  # out of descriptors, out of ports
NUMBER = re.compile(r"\[Errno (\d+)\]")


class Connections:
    """A pool of connections, kept open for later requests."""

    def __init__(self, target: Target) -> None:
        self.target, self.tls = target, target.tls
        self._free: list[Connection] = []
        self._open: set[Connection] = set()

    async def ask(self, request: bytes, exchange: Exchange) -> None:
        """Send a request and wait for the whole answer. Raises Broken or Left.

        A server may close a kept connection at the moment it is reused. The request is then sent
        over a new one, as HTTP clients do. If the connection ends later, the server may have begun
        to compute, so the attempt has failed.
        """
        connection, loop = self._kept(), asyncio.get_running_loop()
        if connection:
            began = loop.time()
            try:
                return await self._ask(connection, request, exchange)
            except Broken as broken:
                if not broken.fresh or loop.time() - began > AT_ONCE:
                    raise
            exchange.ended = loop.create_future()
        await self._ask(await self._new(), request, exchange)

    async def _ask(self, connection: Connection, request: bytes, exchange: Exchange) -> None:
        try:
            await connection.ask(request, exchange)
        finally:
            if connection.is_open:
                self._free.append(connection)
            else:
                self._open.discard(connection)

    def _kept(self) -> Connection | None:
        while self._free:
            if (connection := self._free.pop()).is_open:
                return connection
            self._open.discard(connection)
        return None

    async def _new(self) -> Connection:
        target, loop = self.target, asyncio.get_running_loop()
        making = loop.create_connection(Connection, target.host, target.port, ssl=self.tls)
        try:
            _, connection = await asyncio.wait_for(making, PATIENCE)
        except TimeoutError as error:
            raise Broken(f"no connection within {PATIENCE:g} s", fresh=True) from error
        except OSError as error:
            blamed = OWN_FAULT if _is_clients_fault(error) else "no connection: "
            raise Broken(f"{blamed}{_reason(error)}", fresh=True) from error
        self._open.add(connection)
        return connection

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.close()


def _is_clients_fault(error: OSError) -> bool:
    """Whether this machine had no descriptor or port left.

    If several addresses failed, the last one decides, because unreachable ones come first.
    """
    numbers = [error.errno] if error.errno else [int(each) for each in NUMBER.findall(str(error))]
    return bool(numbers) and numbers[-1] in NONE_LEFT


def _reason(error: OSError) -> str:
    """The error in words, without asyncio's list of addresses. TLS error numbers are not looked up,
    because they are not the system's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
