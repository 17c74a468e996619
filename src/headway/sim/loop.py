"""An event loop in virtual time (run): asyncio code that waits takes no time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from headway.errors import StuckError
from headway.sim.clock import VirtualClock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for a time, it sets the clock to it. Files are never ready: whoever waits
    for another thread or the network does not belong here."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckError("nothing will ever happen: every task waits, and for no time")
        if timeout > 0:
            self._clock.advance_to(self._clock.now() + max(1, round(timeout * 1e9)))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """From time 0. Its callbacks run in one order: by time, then as they were scheduled."""

    def __init__(self) -> None:
        self._virtual = VirtualClock()
        super().__init__(_Selector(self._virtual))

    def time(self) -> float:
        return self._virtual.now() / 1e9


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in virtual time. Raises StuckError where everybody would wait for ever."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
