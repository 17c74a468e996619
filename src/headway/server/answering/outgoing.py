"""What a stream has to say and its client has not taken yet. On the event loop's thread."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headway.server.protocol.chunks import WAITING

MOST_HELD = 256 * 1024  # bytes of a stream that its client leaves untaken; then it is cancelled


@dataclass(slots=True)
class Parts:
    """Chunks that are made when they are taken, one after the other."""

    chunks: Iterator[bytes]
    size: int  # bytes, about
    echo: bool  # of a prompt: it comes at once, and its client is not to blame for its size


class Outgoing:
    """A line of chunks, and of parts that are still to be made."""

    def __init__(self) -> None:
        self._line: deque[bytes | Parts] = deque()
        self.held = self._untaken = 0  # bytes in it, but for echoes: now, and before this news
        self._sending = 0  # bytes of the echo of which a part was taken last
        self.writer: asyncio.Task[Any] | None = None  # who sends what was taken
        self._wake: asyncio.Future[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._line)

    def put(self, chunk: bytes) -> None:
        self._line.append(chunk)
        self.held += len(chunk)

    def put_parts(self, parts: Parts) -> None:
        self._line.append(parts)
        self.held += 0 if parts.echo else parts.size

    def is_left(self) -> bool:
        """Asked once for each news: whether its client does not come for what it holds.

        Who reads as fast as the answer is made always does. One step's news may be any size, and so
        may a choice's echo with its scores, which comes once: neither counts, and while an echo is
        being sent, as much of the answers may come.
        """
        left = self._untaken > MOST_HELD + self._sending and self.writer is not None
        self._untaken = self.held
        return left

    def wake(self) -> None:
        """Who waits for something to take."""
        if self._wake and not self._wake.done():
            self._wake.set_result(None)

    def beat(self) -> None:
        """Nothing was said for long: who waits has a comment to send."""
        if self._wake and not self._wake.done() and not self._line:
            self.put(WAITING)
            self.wake()

    async def wait(self, done: bool) -> None:
        """Until there is something to take. done: nothing more will come."""
        self.writer = None
        if self._line:
            if isinstance(self._line[0], Parts):
                await asyncio.sleep(0)  # the others' turn, before the next is made
        elif not done:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def take(self) -> bytes:
        """All up to the next parts, or one of those; it may be empty. The task that takes it is
        busy with it until it waits again."""
        self.writer, self._untaken = asyncio.current_task(), 0
        if self._line and isinstance(parts := self._line[0], Parts):
            return self._part(parts)
        return self._ready()

    def take_last(self) -> bytes:
        """What is ready: what is still to be made is given up."""
        self._line = deque([each for each in self._line if isinstance(each, bytes)])
        return self.take()

    def _ready(self) -> bytes:
        found = list[bytes]()
        while self._line and isinstance(chunk := self._line[0], bytes):
            found.append(chunk)
            self._line.popleft()
        said = found[0] if len(found) == 1 else b"".join(found)
        self.held -= len(said)
        self._sending = 0
        return said

    def _part(self, parts: Parts) -> bytes:
        self._sending = parts.size if parts.echo else 0
        said = next(parts.chunks, b"")
        if not said:
            self._line.popleft()
            self.held -= 0 if parts.echo else parts.size
        return said
