"""An inbox that any thread may fill (LiveInbox)."""

import threading
from collections import deque
from collections.abc import Iterable

from headway.core.commands import Command
from headway.core.request import NEVER
from headway.live.clock import WallClock


class LiveInbox:
    """Commands from any thread, in the order in which they were put."""

    def __init__(self, clock: WallClock) -> None:
        self.clock = clock
        self._commands: deque[Command] = deque()
        self._arrived = threading.Condition()
        self._wanted = 1  # how many commands the engine waits for
        self._woken = False  # whether `wake` was called since the last wait ended

    def put(self, commands: Iterable[Command]) -> None:
        """Add these commands; the engine sees all of them or none."""
        with self._arrived:
            self._commands.extend(commands)
            if len(self._commands) >= self._wanted:
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
        timeout = None if until == NEVER else max(0, until - self.clock.now()) / 1e9
        with self._arrived:
            self._wanted = least
            self._arrived.wait_for(lambda: self._woken or len(self._commands) >= least, timeout)
            self._woken = False  # not in `poll`: a step may have come back after its last look
