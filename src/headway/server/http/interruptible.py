"""A part of a task's work that another task can interrupt, with the answer for its client."""

import asyncio
from typing import Any

from headway.server.protocol.problem import Problem


class Interruptible:
    """A context manager around the part that can be interrupted, of the task that enters it. Raises
    the Problem that `interrupt` was given."""

    __slots__ = ("_is_running", "_problem", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._is_running = False
        self._problem: Problem | None = None

    def __enter__(self) -> None:
        self._task, self._is_running = asyncio.current_task(), True

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._is_running = False
        if not self._problem or not isinstance(error, asyncio.CancelledError):
            return
        assert self._task
        if not self._task.uncancel():  # else it was cancelled by the server, too
            raise self._problem from None

    def interrupt(self, problem: Problem) -> None:
        """Cancel whatever the task awaits there. Does nothing elsewhere, or a second time."""
        if self._is_running and not self._problem:
            assert self._task
            self._problem = problem
            self._task.cancel()
