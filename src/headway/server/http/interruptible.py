"""A part of a task's work that another task can interrupt, with the answer for its client."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from headway.server.protocol.problem import Problem


class Interruptible:
    """Belongs to the task that makes it."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._is_running = False
        self._problem: Problem | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """The part that can be interrupted. Raises the Problem that `interrupt` was given."""
        assert self._task and self._task is asyncio.current_task()
        self._is_running = True
        try:
            yield
        except asyncio.CancelledError:
            if self._problem and not self._task.uncancel():
                raise self._problem from None
            raise  # cancelled by the server, or by both
        finally:
            self._is_running = False

    def interrupt(self, problem: Problem) -> None:
        """Cancel whatever the task awaits there. Does nothing elsewhere, or a second time."""
        if self._is_running and not self._problem:
            assert self._task
            self._problem = problem
            self._task.cancel()
