"""One item on its way through a batcher (Item), and how its caller gets the result (Sink)."""

import asyncio
import logging
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from headway.core.batch import Event
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import BY_ITSELF, NEVER, Finish
from headway.errors import DeadlineError, EngineError, RefusedError
from headway.live.account import Account


class Piece(NamedTuple):
    """One piece of a stream."""

    value: Any


class Result(NamedTuple):
    """An item's result. For a stream, it marks the end."""

    value: Any = None


class Failure(NamedTuple):
    """The error that an item has instead of a result."""

    error: BaseException


News = Piece | Result | Failure


class Sink(Protocol):
    """A receiver of an item's news. It must not block: it runs in the engine's thread or a loop."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which `take` must be called. None: any thread."""
        ...

    def take(self, news: News) -> None: ...


class Offer(NamedTuple):
    """An item offered to a batcher. Times are on the clock of time.monotonic_ns()."""

    value: Any
    sink: Sink
    account: Account | None = None  # is told what the item has cost
    due: int = NEVER  # when it should have its result; orders items, and never drops one
    planned: int = NEVER  # the item does not wait for a fuller call that would end after this
    end_by: int = NEVER  # when its result is not wanted any more


class Item:
    """An item. The executor fills in its results, and the Batcher delivers them to its caller."""

    __slots__ = (
        *("account", "cost", "dropped", "error", "id", "lane", "pieces", "result"),
        *("row", "sink", "step", "value", "waits"),
    )

    def __init__(
        self, value: Any, lane: str, sink: Sink, account: Account | None = None, cost: int = 1
    ) -> None:
        self.value, self.lane, self.sink, self.account = value, lane, sink, account
        self.cost = cost
        self.id = ""  # of its request
        self.waits = False  # it was accepted, and is in no call yet
        self.dropped = False  # its result is not wanted: a call that has not begun leaves it out
        self.result: Any = None
        self.error: BaseException | None = None
        self.pieces: deque[Any] = deque()  # of a stream, yielded and not yet told
        self.row: RequestRow | None = None  # of the ledger, once the item has ended
        self.step: StepRow | None = None  # the call after which it ended; None: it ended before

    def fail(self, error: BaseException) -> None:
        """Set the item's error. It becomes the cause of a RuntimeError if a future cannot carry it
        (a StopIteration, or one that counts as false: it would never be raised), or if it would end
        the caller's task or event loop (a BaseException)."""
        if isinstance(error, Exception) and not isinstance(error, StopIteration) and error:
            self.error = error
            return
        self.error = RuntimeError(f"the function failed with {error!r}")
        self.error.__cause__ = error


class FutureSink:
    """Resolve a concurrent.futures.Future."""

    loop = None

    def __init__(self) -> None:
        self.future: Future[Any] = Future()

    def take(self, news: News) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        if isinstance(news, Failure):
            self.future.set_exception(news.error)
        else:
            self.future.set_result(news.value)


class LoopSink:
    """Resolve a future of the running event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def take(self, news: News) -> None:
        if self.future.done():
            return
        if isinstance(news, Failure):
            self.future.set_exception(news.error)
        else:
            self.future.set_result(news.value)


class QueueSink:
    """Put the news of a stream into a queue, for a thread."""

    loop = None

    def __init__(self) -> None:
        self.queue: SimpleQueue[News] = SimpleQueue()

    def take(self, news: News) -> None:
        self.queue.put(news)


class LoopQueueSink:
    """Put the news of a stream into a queue of the running event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[News] = asyncio.Queue()

    def take(self, news: News) -> None:
        self.queue.put_nowait(news)


class Deliveries:
    """News on its way to the sinks. `send` wakes each event loop once for all of its sinks."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.AbstractEventLoop, list[tuple[Sink, News]]] = {}

    def add(self, sink: Sink, news: News) -> None:
        if sink.loop is not None:
            self._waiting.setdefault(sink.loop, []).append((sink, news))
            return
        try:
            sink.take(news)
        except BaseException:  # a future's callback may exit, which would end the engine
            _log()

    def send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for loop, told in waiting.items():
            with suppress(RuntimeError):  # the loop is closed, so there is no caller left to tell
                loop.call_soon_threadsafe(_take_all, told)


def _take_all(told: list[tuple[Sink, News]]) -> None:
    for sink, news in told:
        try:
            sink.take(news)
        except Exception:  # the other sinks must still be told
            _log()


def _log() -> None:
    logging.getLogger("headway.batching").exception("a caller could not be told its result")


def outcome_of(item: Item, event: Event) -> News:
    """The news for an item's caller when the item has ended with this event."""
    if event.finish in BY_ITSELF:
        return Result(item.result)
    match event.finish:
        case Finish.EXPIRED:
            return Failure(DeadlineError("the item's deadline was over before its result came"))
        case Finish.REFUSED:
            return Failure(RefusedError(event.error, NEVER))
        case Finish.CANCELLED:
            return Failure(EngineError("the item was cancelled"))
    return Failure(item.error or EngineError(event.error))


def raised(news: News) -> None:
    """Raise the error if the news is a Failure; otherwise it must be a Result."""
    if isinstance(news, Failure):
        raise news.error
    assert isinstance(news, Result)
