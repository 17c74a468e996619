"""AsyncPieces: what an async generator yields, for a thread."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from typing import Any


class AsyncPieces(Iterator[Any]):
    """Iterate over an async generator in a thread. The event loop runs only while the thread waits.

    One task runs the generator from its beginning to its end, because what a generator has open
    while it yields belongs to a task: a timeout or a task group cancels the task that began it.
    """

    def __init__(self, generator: AsyncGenerator[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._generator, self._loop = generator, loop
        self._task: asyncio.Task[None] | None = None  # none before the first piece is wanted
        # The next piece, or what ended the generator. Two, if it was cancelled before the thread
        # had the first of them.
        self._news: deque[tuple[Any, BaseException | None]] = deque()
        self._told: asyncio.Future[None] = loop.create_future()  # there are news
        self._wanted: asyncio.Future[None] = loop.create_future()  # the thread waits again
        self._closes = False

    def __next__(self) -> Any:
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        if not self._news:
            if self._task.done():
                raise StopIteration
            self._told = self._loop.create_future()
            self._go_on()
            self._loop.run_until_complete(self._told)
        piece, error = self._news.popleft()
        if isinstance(error, StopAsyncIteration):
            raise StopIteration
        if error is not None:
            raise error
        return piece

    def close(self) -> None:
        """Close the generator. Raises what its cleanup raises."""
        self._closes = True
        if self._task and not self._task.done():
            self._go_on()
            self._loop.run_until_complete(self._task)

    def _go_on(self) -> None:
        if not self._wanted.done():  # else the task was cancelled while nobody waited for a piece
            self._wanted.set_result(None)

    def _tell(self, piece: Any, error: BaseException | None = None) -> None:
        self._news.append((piece, error))
        if not self._told.done():
            self._told.set_result(None)

    async def _run(self) -> None:
        try:
            piece = await anext(self._generator)
            while not self._closes:
                self._wanted = self._loop.create_future()
                self._tell(piece)
                piece = await self._next()
        except BaseException as error:  # even one that would end the loop: the thread raises it
            if not self._closes:
                self._tell(None, error)
            elif not isinstance(error, StopAsyncIteration):
                raise
        finally:
            await self._generator.aclose()

    async def _next(self) -> Any:
        """The next piece, once it is wanted; None: the generator is to be closed."""
        try:
            await self._wanted
        except asyncio.CancelledError as cancelled:  # by what the generator has open
            return await self._generator.athrow(cancelled)
        return None if self._closes else await anext(self._generator)
