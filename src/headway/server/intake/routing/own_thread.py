"""OwnThreads: call a user's functions in threads that hold up nothing but their callers."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headway.server.intake.tokenizing import carried

MOST = 32  # calls of a function at once; the others wait


class OwnThreads:
    """Calls in daemon threads, one for each call.

    A function that never returns keeps its thread and its place. It delays no work of the server's
    own, and not the end of the process.
    """

    def __init__(self, most: int = MOST) -> None:
        self._places = asyncio.Semaphore(most)

    async def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return what the function returns, or raise what it raises (as `carried` has it)."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def end(result: Any, error: Exception | None) -> None:
            self._places.release()
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def run() -> None:
            found: tuple[Any, Exception | None]
            try:
                found = context.run(carried, function, *given), None
            except Exception as error:
                found = None, error
            with suppress(RuntimeError):  # the loop has been closed, so nobody waits
                loop.call_soon_threadsafe(end, *found)

        try:
            threading.Thread(target=run, name="headway-judge", daemon=True).start()
        except RuntimeError:  # no more threads can be started
            self._places.release()
            raise
        return await done
