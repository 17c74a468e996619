"""StoreThread: the one thread that uses a database, and that a server can leave behind."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from headway.store.database import Database, StoreError

Found = TypeVar("Found")
CLOSING = 5.0  # seconds to do what was asked and to close the database


class StoreThread:
    """Makes calls one after another, in the order in which they were asked.

    A call may never return, such as when the host of PostgreSQL is gone. The thread is a daemon, so
    it does not keep the process from ending.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self.calls = SimpleQueue[Future[Any] | None]()
        # A call that is given up is dropped at once, with what it holds, such as a body to store.
        self._unanswered = dict[Future[Any], Callable[[], Any]]()
        self._ended = Future[None]()
        self._is_closed = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def ask(self, function: Callable[..., Found], *given: object) -> Found:
        """Call a function in the thread, and return what it returns. Raises StoreError."""
        return await asyncio.wrap_future(self.submit(function, *given))

    def submit(self, function: Callable[..., Found], *given: object) -> Future[Found]:
        """Call a function in the thread, and return its future."""
        answer = Future[Found]()
        if self._is_closed:
            answer.set_exception(StoreError(f"the store {self._database.name} is closed"))
            return answer
        self._unanswered[answer] = partial(function, *given)
        answer.add_done_callback(lambda done: self._unanswered.pop(done, None))
        self.calls.put(answer)
        return answer

    async def close(self) -> bool:
        """Close the database and end the thread, once it has done what it was asked.

        False: a call still runs after CLOSING seconds. The thread is then left behind, and all
        unanswered calls fail with StoreError.
        """
        self._is_closed = True
        self.calls.put(None)
        _, hanging = await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=CLOSING)
        if hanging:
            why = StoreError(f"the store {self._database.name} does not answer")
            for each in list(self._unanswered):
                with suppress(InvalidStateError):  # it was answered just now
                    each.set_exception(why)
        return not hanging

    def _run(self) -> None:
        try:
            while answer := self.calls.get():
                self._make(answer)
        finally:
            self._database.close()
            self._ended.set_result(None)

    def _make(self, answer: Future[Any]) -> None:
        call = self._unanswered.get(answer)
        if call is None:  # cancelled, or failed by `close`
            return
        try:
            found = call()
        except BaseException as error:  # the caller's error, not the thread's
            if isinstance(error, StopIteration):  # no future of asyncio may end with it
                error = RuntimeError(f"{error!r} left the store's thread")
            with suppress(InvalidStateError):
                answer.set_exception(error)
        else:
            with suppress(InvalidStateError):  # nobody waits any more
                answer.set_result(found)
