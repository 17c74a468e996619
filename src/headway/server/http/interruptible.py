"""Interruptible: a part of a task that another task can interrupt, with an answer to send."""

import asyncio
from typing import Any

from headway.server.protocol.problem import Problem


class Interruptible:
    """A context manager around the part of a task that can be interrupted. Raises the Problem that
    was given to `interrupt`."""

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
        if not self._task.uncancel():  # else the server has cancelled the task as well
            raise self._problem from None

    def interrupt(self, problem: Problem) -> None:
        """Interrupt the task inside the block. Does nothing outside the block, or a second time."""
        if self._is_running and not self._problem:
            assert self._task
            self._problem = problem
            self._task.cancel()
