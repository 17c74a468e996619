"""Outgoing: what a stream's client has not taken yet. Runs on the event loop's thread."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headway.server.protocol.chunks import WAITING

MOST_HELD = 256 * 1024  # bytes of a stream that its client may leave unread; then the call ends


@dataclass(slots=True)
class Parts:
    """Chunks that are made one by one as they are taken."""

    chunks: Iterator[bytes]
    size: int  # bytes, roughly
    echo: bool  # an echoed prompt: it comes all at once, which is not the client's fault


class Outgoing:
    """A queue of chunks, and of parts that are still to be made."""

    def __init__(self, most: int = 0) -> None:
        """most: bytes that the client may leave unread; 0: MOST_HELD."""
        self._most = most or MOST_HELD
        self._line: deque[bytes | Parts] = deque()
        self.held = self._untaken = 0  # bytes without echoes: now, and at the last flush or take
        self._sending = 0  # bytes of the echo being sent
        self.writer: asyncio.Task[Any] | None = None  # the task, while it sends what it took
        self._taker: asyncio.Task[Any] | None = None  # the task that takes, always the same
        self._wake: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._line)

    def put(self, chunk: bytes) -> None:
        """Queue these bytes, and count them as held."""
        self._line.append(chunk)
        self.held += len(chunk)

    def put_parts(self, parts: Parts) -> None:
        """Queue these parts. Their size counts as held, unless they are an echo."""
        self._line.append(parts)
        self.held += 0 if parts.echo else parts.size

    def flush(self, done: bool) -> bool:
        """Wake the waiting task after a step's output was queued. Returns whether the client has
        stopped reading. done: nothing more will come.

        A client that reads as fast as the answer is made never counts as stopped. The latest step's
        output may have any size and does not count, nor does an echo with its scores. While an echo
        is being sent, as many more bytes of the answers may pile up.
        """
        if (wake := self._wake) and (self._line or done) and not wake.done():
            wake.set_result(None)
        left = self._untaken > self._most + self._sending and self.writer is not None
        self._untaken = self.held
        return left

    def beat(self) -> None:
        """Give the waiting task a keep-alive comment to send, if nothing else is queued."""
        if (wake := self._wake) and not wake.done() and not self._line:
            self.put(WAITING)
            wake.set_result(None)

    async def wait(self, done: bool) -> None:
        """Wait until there is something to take. done: nothing more will come."""
        self.writer = None
        if self._line:
            if isinstance(self._line[0], Parts):
                await asyncio.sleep(0)  # let other tasks run before the next part is made
        elif not done:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def take(self) -> bytes:
        """Take all chunks up to the next Parts, or one part; the result may be empty. The calling
        task counts as sending until it waits again."""
        self.writer = self._taker = self._taker or asyncio.current_task()
        self._untaken = 0
        first = self._line[0] if self._line else b""
        if isinstance(first, Parts):
            return self._part(first)
        self._sending = 0
        if len(self._line) != 1:
            return self._ready()
        self._line.clear()  # nearly always: one chunk for each step
        self.held = 0
        return first

    def taken(self) -> None:
        """Nothing more is taken: forget the task that took. A task keeps its context, which leads
        back to the call, and only the garbage collector would free such a cycle."""
        self.writer = self._taker = None

    def take_last(self) -> bytes:
        """Take all ready chunks, and drop parts that are not made yet."""
        self._line = deque([each for each in self._line if isinstance(each, bytes)])
        return self.take()

    def _ready(self) -> bytes:
        found = list[bytes]()
        while self._line and isinstance(chunk := self._line[0], bytes):
            found.append(chunk)
            self._line.popleft()
        data = b"".join(found)
        self.held -= len(data)
        return data

    def _part(self, parts: Parts) -> bytes:
        self._sending = parts.size if parts.echo else 0
        data = next(parts.chunks, b"")
        if not data:
            self._line.popleft()
            self.held -= 0 if parts.echo else parts.size
        return data
