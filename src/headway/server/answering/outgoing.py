"""What a stream's client has not taken yet. On the event loop's thread."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headway.server.protocol.chunks import WAITING

MOST_HELD = 256 * 1024  # bytes of a stream that its client may leave; beyond them the call ends


@dataclass(slots=True)
class Parts:
    """Chunks that are made one by one, when they are taken."""

    chunks: Iterator[bytes]
    size: int  # bytes, roughly
    echo: bool  # of a prompt: it comes all at once, which is not the client's fault


class Outgoing:
    """A queue of chunks, and of parts that are still to be made."""

    def __init__(self) -> None:
        self._line: deque[bytes | Parts] = deque()
        self.held = self._untaken = 0  # bytes without echoes: now, and before the latest news
        self._sending = 0  # bytes of the echo that is being sent
        self.writer: asyncio.Task[Any] | None = None  # the task that sends what it has taken
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

    def is_abandoned(self) -> bool:
        """Whether the client has stopped reading. Asked once per step that brings news.

        A client that reads as fast as the answer is made is never judged so. The latest step's news
        may have any size and does not count. Neither does an echo with its scores; while one is
        being sent, as many bytes of the answers may gather.
        """
        left = self._untaken > MOST_HELD + self._sending and self.writer is not None
        self._untaken = self.held
        return left

    def wake(self) -> None:
        """Wake the task that waits for something to take."""
        if self._wake and not self._wake.done():
            self._wake.set_result(None)

    def beat(self) -> None:
        """Nothing was sent for long: give the task that waits a comment to send."""
        if self._wake and not self._wake.done() and not self._line:
            self.put(WAITING)
            self.wake()

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
        """All chunks up to the next parts, or one part; it may be empty. The calling task counts as
        sending until it waits again."""
        self.writer, self._untaken = asyncio.current_task(), 0
        if self._line and isinstance(parts := self._line[0], Parts):
            return self._part(parts)
        return self._ready()

    def take_last(self) -> bytes:
        """All chunks that are ready; parts that are not made yet are dropped."""
        self._line = deque([each for each in self._line if isinstance(each, bytes)])
        return self.take()

    def _ready(self) -> bytes:
        found = list[bytes]()
        while self._line and isinstance(chunk := self._line[0], bytes):
            found.append(chunk)
            self._line.popleft()
        data = found[0] if len(found) == 1 else b"".join(found)
        self.held -= len(data)
        self._sending = 0
        return data

    def _part(self, parts: Parts) -> bytes:
        self._sending = parts.size if parts.echo else 0
        data = next(parts.chunks, b"")
        if not data:
            self._line.popleft()
            self.held -= 0 if parts.echo else parts.size
        return data
