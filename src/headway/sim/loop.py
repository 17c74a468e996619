"""An event loop in virtual time (run): waits in asyncio code take no real time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from headway.errors import StuckError
from headway.sim.clock import VirtualClock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """A selector that sets the clock instead of waiting. No file is ever ready, so code that waits
    for another thread or the network cannot run here."""

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
    """An event loop whose time starts at 0. Callbacks run by time, then in scheduling order."""

    def __init__(self) -> None:
        self._virtual = VirtualClock()
        super().__init__(_Selector(self._virtual))

    def time(self) -> float:
        return self._virtual.now() / 1e9


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run like asyncio.run, in virtual time. Raises StuckError if all tasks would wait forever."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
