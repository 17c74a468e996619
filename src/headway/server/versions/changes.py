"""Changes of versions, each of which runs to its end (Changes)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Found = TypeVar("Found")


class Changes:
    """Runs each change in a task of its own, so that a caller that leaves does not stop it halfway.
    The store's thread would commit all the same, and the engines must follow."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, change: Coroutine[Any, Any, Found]) -> asyncio.Task[Found]:
        """Start a change that nobody needs to wait for."""
        task = asyncio.create_task(change)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, change: Coroutine[Any, Any, Found]) -> Found:
        """Await a change. If its caller is cancelled, it goes on, and its error is dropped."""
        task = self.begin(change)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def close(self, seconds: float) -> None:
        """Wait until all changes have ended. Cancel those that take longer."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
            for each in late:
                each.cancel()
