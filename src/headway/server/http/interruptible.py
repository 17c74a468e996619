"""A stretch of a task's work that others can end, with what its client is told."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from headway.server.protocol.problem import Problem


class Endable:
    """Of the task that makes it."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._within = False
        self._problem: Problem | None = None

    @contextmanager
    def stretch(self) -> Iterator[None]:
        """Raises the Problem that `end` was told, for which what it waits for is cancelled."""
        assert self._task and self._task is asyncio.current_task()
        self._within = True
        try:
            yield
        except asyncio.CancelledError:
            if self._problem and not self._task.uncancel():
                raise self._problem from None
            raise  # the server's own doing, or both
        finally:
            self._within = False

    def end(self, problem: Problem) -> None:
        """Nothing happens outside the stretch, or if it has been ended before."""
        if self._within and not self._problem:
            assert self._task
            self._problem = problem
            self._task.cancel()
