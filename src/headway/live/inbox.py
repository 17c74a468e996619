"""An inbox that any thread may fill (LiveInbox)."""

import threading
from collections import deque
from collections.abc import Iterable

from headway.core.commands import Add, Command
from headway.core.request import NEVER
from headway.live.clock import WallClock


class LiveInbox:
    """Commands from any thread, in the order in which they were put."""

    def __init__(self, clock: WallClock) -> None:
        self.clock = clock
        self._commands: deque[Command] = deque()
        self._arrived = threading.Condition()
        self._wanted = 1  # how many commands the engine waits for
        self._until = 0  # the time at which its wait ends; 0: it does not wait
        self._woken = False  # whether `wake` was called since the last wait ended

    def put(self, commands: Iterable[Command]) -> None:
        """Add these commands; the engine sees all of them or none."""
        added = tuple(commands)
        with self._arrived:
            self._commands.extend(added)
            if len(self._commands) >= self._wanted or (
                self._until and _read_by(added) < self._until
            ):
                self._arrived.notify()

    def wake(self) -> None:
        """Wake the engine for something other than a command."""
        with self._arrived:
            self._woken = True
            self._arrived.notify()

    def poll(self) -> list[Command]:
        with self._arrived:
            due = list(self._commands)
            self._commands.clear()
            return due

    def wait(self, until: int, least: int = 1) -> None:
        """Return also at the deadline of a command that waits: few of them may be left unread."""
        with self._arrived:
            self._wanted = least
            while not self._woken and len(self._commands) < least:
                self._until = min(until, _read_by(self._commands))
                if (left := self._until - self.clock.now()) <= 0:
                    break
                self._arrived.wait(min(left / 1e9, threading.TIMEOUT_MAX))
            self._until = 0
            self._woken = False  # not in `poll`: a step may have come back after its last look


def _read_by(commands: Iterable[Command]) -> int:
    """The earliest deadline of these commands' requests, which the engine drops then. NEVER: they
    have none, and may stay unread for long."""
    earliest = NEVER
    for command in commands:
        if isinstance(command, Add):
            request = command.request
            earliest = min(earliest, request.start_by, request.end_by)
    return earliest
