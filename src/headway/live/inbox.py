"""An inbox that any thread may fill."""

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

    def put(self, commands: Iterable[Command]) -> None:
        """Add these commands; the engine sees all of them or none."""
        with self._arrived:
            self._commands.extend(commands)
            self._arrived.notify()

    def poll(self) -> list[Command]:
        with self._arrived:
            due = list(self._commands)
            self._commands.clear()
            return due

    def wait(self, until: int) -> None:
        timeout = None if until == NEVER else max(0, until - self.clock.now()) / 1e9
        with self._arrived:
            self._arrived.wait_for(lambda: self._commands, timeout)
