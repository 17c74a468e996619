"""Who hears of which request: a Caller in a thread or an event loop, and the table of them."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

from headway.core.batch import Event
from headway.errors import EngineDownError

News = Event | EngineDownError  # what a caller is told
Told = list[tuple["asyncio.Queue[News]", News]]  # for each, the caller's queue


class Caller(Protocol):
    """Hears of a request. It is called by the engine's thread, so it must not block."""

    def tell(self, news: News) -> None:
        """One event of a request, or the engine's end."""
        ...

    def flush(self) -> None:
        """All news of a step have been told."""
        ...


class QueueCaller:
    """Puts the news of any number of requests into one queue, for another thread."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[News] = SimpleQueue()

    def tell(self, news: News) -> None:
        self.queue.put(news)

    def flush(self) -> None:
        pass


class LoopCaller:
    """Puts the news of one request into an asyncio queue.

    told: what the callers of this event loop have been told since the loop was last woken. They
    share the list, so that a step wakes the loop once, and not once for each of them.
    """

    def __init__(self, told: Told, ended: Callable[[], object] = lambda: None) -> None:
        """ended: called in the engine's thread when the request has ended or the engine is down,
        also if nobody listens any more."""
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[News] = asyncio.Queue()
        self._told, self._ended = told, ended

    def tell(self, news: News) -> None:
        if isinstance(news, EngineDownError) or news.finish:
            self._ended()
        self._told.append((self.queue, news))

    def flush(self) -> None:
        if told := self._told[:]:  # else another caller of this loop has delivered it
            self._told.clear()
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self.loop.call_soon_threadsafe(_deliver, told)


def _deliver(told: Told) -> None:
    for queue, news in told:
        queue.put_nowait(news)


class Callers:
    """The caller of each open request. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, Caller] = {}  # by id of the request
        self._down: EngineDownError | None = None

    @property
    def open(self) -> list[str]:
        """Ids of the requests that have not ended, as far as their callers know."""
        with self._lock:
            return list(self._of)

    @property
    def down(self) -> str:
        """Why `fail` was called. Empty: it was not."""
        return str(self._down) if self._down else ""

    def check_up(self) -> None:
        """Raise EngineDownError if `fail` was called."""
        if self._down:
            heard(self._down)

    def add(self, ids: Iterable[str], caller: Caller) -> None:
        """This caller hears of these requests. EngineDownError if `fail` was called before."""
        with self._lock:
            self.check_up()
            self._of.update(dict.fromkeys(ids, caller))

    def tell(self, events: Iterable[Event]) -> None:
        """Tell callers the events of a step, and flush each of them once. Nothing after `fail`.

        If a caller raises, the others are still told. The errors are raised at the end.
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
        """Tell all callers that the engine is down, and why. The first reason counts.

        If a caller raises, the others are still told. The errors are raised at the end.
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
    """Return the event. If it is the engine's end, raise it, as a new exception."""
    if isinstance(news, EngineDownError):
        raise type(news)(str(news)) from news.__cause__
    return news
