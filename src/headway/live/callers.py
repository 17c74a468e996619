"""Who hears of a request: queues of threads and of event loops, and the table of all callers."""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

from headway.core.batch import Event
from headway.errors import EngineDownError

News = Event | EngineDownError  # what a caller hears
Told = list[tuple["asyncio.Queue[News]", News]]  # by callers' queues


class Caller(Protocol):
    """Who hears of a request. Called by the engine's thread, so it must not wait."""

    def tell(self, news: News) -> None: ...

    def flush(self) -> None:
        """A step's news are all told."""
        ...


class QueueCaller:
    """Any number of requests into one queue, read by another thread."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[News] = SimpleQueue()

    def tell(self, news: News) -> None:
        self.queue.put(news)

    def flush(self) -> None:
        pass


class LoopCaller:
    """Into an asyncio queue; one per request.

    told: what all callers of its loop have been told since the loop was woken. They share it, so
    that a step wakes the loop once and not once for each.
    """

    def __init__(self, told: Told) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[News] = asyncio.Queue()
        self._told = told

    def tell(self, news: News) -> None:
        self._told.append((self.queue, news))

    def flush(self) -> None:
        if told := self._told[:]:  # else another caller has brought it all
            self._told.clear()
            with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                self.loop.call_soon_threadsafe(_deliver, told)


def _deliver(told: Told) -> None:
    for queue, news in told:
        queue.put_nowait(news)


class Callers:
    """Who hears of which request. Asked from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, Caller] = {}  # by id of the request
        self._down: EngineDownError | None = None

    @property
    def open(self) -> list[str]:
        """Ids of the requests whose end nobody has heard of."""
        with self._lock:
            return list(self._of)

    def check_up(self) -> None:
        """EngineDownError if all were failed."""
        if self._down:
            heard(self._down)

    def add(self, ids: Iterable[str], caller: Caller) -> None:
        """EngineDownError if all were failed: nobody comes after that."""
        with self._lock:
            self.check_up()
            self._of.update(dict.fromkeys(ids, caller))

    def tell(self, events: Iterable[Event]) -> None:
        """A step's news; each caller is flushed once. Who was failed has heard all.

        A caller that fails over them takes nobody else's from them: its error is raised when all
        have heard.
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
        """All hear that the engine is down, and why; the first time counts. Who fails over it, as
        `tell` has it."""
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
    """The event, or the engine's end as the caller's own exception."""
    if isinstance(news, EngineDownError):
        raise type(news)(str(news)) from news.__cause__
    return news
