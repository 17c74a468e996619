"""By when a connection's client must have sent or read something (Deadline)."""

from asyncio import AbstractEventLoop
from math import inf

from headway.core.request import NEVER
from headway.server.config.durations import SECOND

UNREAD = 60.0  # seconds for the client to read LEAST bytes of an answer, or the rest of it
LEAST = 32 * 1_024


class Deadline:
    """Times are the loop's. A client that reads slowly is given more time, and one that stops
    reading is not: what is kept for it would be kept for ever."""

    __slots__ = ("_due", "_kept", "_loop", "_read_by")

    def __init__(self, loop: AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._due = loop.time() + seconds
        self._read_by = inf  # while writing is paused
        self._kept = 0  # bytes that the client had not read at the last look

    @property
    def at(self) -> float:
        """When it passes."""
        return min(self._due, self._read_by)

    def set(self, seconds: float) -> None:
        """The client has so much time, from now on, for what it does next."""
        self._due = self._loop.time() + seconds

    def shorten(self, seconds: float) -> None:
        """The client has no more time than this, from now on."""
        self._due = min(self._due, self._loop.time() + seconds)

    def answered(self, idle: float, kept: int) -> None:
        """All is answered. The client has not read so many bytes of it, and may be idle for so
        many seconds."""
        self.set(max(idle, UNREAD) if kept else idle)
        self._kept = kept

    def pause(self, kept: int) -> None:
        """Nothing more is written until the client has read some of these bytes."""
        self._read_by, self._kept = self._loop.time() + UNREAD, kept

    def resume(self) -> None:
        """The client has read."""
        self._read_by, self._kept = inf, 0

    def extend(self, kept: int) -> bool:
        """The deadline has passed, and the client has not read so many bytes. Returns whether it
        has read enough since the last look to be given as much time again."""
        before, self._kept = self._kept, kept
        if before - kept < LEAST:
            return False
        if self._read_by < inf:
            self._read_by = self._loop.time() + UNREAD
        if self._due < inf:
            self.set(UNREAD)
        return True


def seconds(time: int) -> float:
    """A configured time in nanoseconds as seconds; infinite for NEVER."""
    return inf if time == NEVER else time / SECOND
