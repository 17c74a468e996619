"""Callers that hear of requests, in a thread or an event loop, and the table of them (Callers)."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

from headway.core.batch import Event
from headway.errors import EngineDownError

News = Event | EngineDownError  # what a caller is told
Told = list[tuple["asyncio.Queue[News]", News]]  # each with the queue of its caller


class Caller(Protocol):
    """A listener for requests. The engine's thread calls it, so it must not block."""

    def tell(self, news: News) -> None:
        """Hear one event of a request, or that the engine is down."""
        ...

    def flush(self) -> None:
        """Hear that all news of a step has been told."""
        ...


class QueueCaller:
    """Put the news of any number of requests into one queue, for another thread."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[News] = SimpleQueue()

    def tell(self, news: News) -> None:
        self.queue.put(news)

    def flush(self) -> None:
        pass


class LoopCaller:
    """Put the news of one request into an asyncio queue.

    told: the news for all callers of this event loop since the loop was last woken. The callers
    share this list, so a step wakes the loop once instead of once per caller.
    """

    def __init__(self, told: Told, ended: Callable[[], object] = lambda: None) -> None:
        """ended: called in the engine's thread when the request has ended or the engine is down,
        even if the caller has left."""
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[News] = asyncio.Queue()
        self._told, self._ended = told, ended

    def tell(self, news: News) -> None:
        if isinstance(news, EngineDownError) or news.finish:
            self._ended()
        self._told.append((self.queue, news))

    def flush(self) -> None:
        if told := self._told[:]:  # if empty, another caller of this loop has delivered the news
            self._told.clear()
            with suppress(RuntimeError):  # the loop is closed, so there is no caller left to tell
                self.loop.call_soon_threadsafe(_deliver, told)


def _deliver(told: Told) -> None:
    for queue, news in told:
        queue.put_nowait(news)


class Callers:
    """The caller of each open request. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, Caller] = {}  # by request id
        self._down: EngineDownError | None = None

    @property
    def open(self) -> list[str]:
        """Ids of the requests whose callers have not been told of an end."""
        with self._lock:
            return list(self._of)

    @property
    def down(self) -> str:
        """Why `fail` was called; empty if it was not."""
        return str(self._down) if self._down else ""

    def check_up(self) -> None:
        """Raise EngineDownError if `fail` was called."""
        if self._down:
            heard(self._down)

    def add(self, ids: Iterable[str], caller: Caller) -> None:
        """Register the caller of these requests. Raises EngineDownError if `fail` was called."""
        with self._lock:
            self.check_up()
            self._of.update(dict.fromkeys(ids, caller))

    def tell(self, events: Iterable[Event]) -> None:
        """Tell callers the events of a step, then flush each caller once. Stop after `fail`.

        If a caller raises, the other callers are still told. The errors are raised at the end.
        """
        told: dict[Caller, None] = {}
        faults = list[Exception]()
        for event in events:
            with self._lock:
                if self._down:
                    return
                caller = (self._of.pop if event.finish else self._of.__getitem__)(event.id)
            try:
                caller.tell(event)
            except Exception as error:
                faults.append(error)
            told[caller] = None
        for caller in told:
            caller.flush()
        if faults:
            raise ExceptionGroup("what callers made of their news", faults)

    def fail(self, down: EngineDownError) -> None:
        """Tell all callers that the engine is down, and why. Later calls keep the first reason.

        If a caller raises, the other callers are still told. The errors are raised at the end.
        """
        with self._lock:
            self._down = self._down or down
            left, self._of = dict.fromkeys(self._of.values()), {}
        faults = list[Exception]()
        for caller in left:
            try:
                caller.tell(down)
                caller.flush()
            except Exception as error:
                faults.append(error)
        if faults:
            raise ExceptionGroup("what callers made of the end", faults)


def heard(news: News) -> Event:
    """Return the event. If the news is an EngineDownError, raise it as a new exception."""
    if isinstance(news, EngineDownError):
        raise type(news)(str(news)) from news.__cause__
    return news
