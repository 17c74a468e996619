"""A small HTTP client for load: keep-alive connections, one request at a time on each. Writes what
it measured as JSON.

Beside a server on two cores a client must cost little: here about 60 microseconds a request.
"""

import asyncio
import json
import sys
from collections import deque
from pathlib import Path

from benchmarks.batcher.contender import Full, NotSent, offer

MOST = 1_000  # connections


class Connection(asyncio.Protocol):
    """One request at a time. The answers must have a content-length."""

    def __init__(self) -> None:
        self.waiter: asyncio.Future[int] | None = None
        self._raw = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._raw += data
        head, found, body = self._raw.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
        if len(body) >= length and self.waiter:
            self._raw.clear()
            waiter, self.waiter = self.waiter, None
            waiter.set_result(int(head.split(None, 2)[1]))

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiter:
            self.waiter.set_exception(error or ConnectionResetError("the server has hung up"))


class Client:
    """Takes a free connection for each request, or makes one more, up to MOST."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._free, self._count = port, deque[Connection](), 0
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        ).encode()

    async def ask(self, item: int) -> int:
        """Raises Full for a refusal, and NotSent where all connections are taken."""
        connection = self._free.popleft() if self._free else await self._made()
        body = str(item).encode()
        waiter = connection.waiter = asyncio.get_running_loop().create_future()
        length = f"content-length: {len(body)}\r\n\r\n".encode()
        connection.transport.write(self._head + length + body)
        status = await waiter
        self._free.append(connection)
        if status in (429, 503):
            raise Full
        assert status == 200, status
        return item

    async def _made(self) -> Connection:
        if self._count >= MOST:
            raise NotSent
        self._count += 1
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, "127.0.0.1", self._port))[1]


async def run(port: int, path: str, rate: float, seconds: float, seed: int) -> dict[str, float]:
    return await offer(Client(port, path).ask, rate, seconds, seed)


if __name__ == "__main__":
    port, path, rate, seconds, seed, said = sys.argv[1:]
    found = asyncio.run(run(int(port), path, float(rate), float(seconds), int(seed)))
    Path(said).write_text(json.dumps(found))
