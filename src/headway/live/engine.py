"""The live half: wall time, an inbox that any thread may fill, and the engine in a thread."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from time import gmtime, monotonic_ns, sleep, strftime
from typing import Protocol
from weakref import WeakKeyDictionary

from headway.core.admission import Refuse, admit
from headway.core.batch import Add, Cancel, Close, Command, Enough, Event, Stop
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.core.view import Load
from headway.engine import Engine, Executor, forgotten
from headway.errors import EngineDownError, RefusedError
from headway.executor.guarded import Guarded
from headway.journal.journal import Record

News = Event | EngineDownError  # what a caller hears
Told = list[tuple["asyncio.Queue[News]", News]]  # by callers' queues


def date() -> str:
    """When it is, for people to read: UTC. Spans are the WallClock's."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())


class WallClock:
    """The one monotonic clock of the process that runs the engine."""

    def now(self) -> int:
        return monotonic_ns()

    def advance_to(self, time: int) -> None:
        """Sleep until then, so that a trace's inbox serves real time as it does virtual time."""
        if (left := time - self.now()) > 0:
            sleep(left / 1e9)


class LiveInbox:
    """Commands from any thread, in the order in which they were put."""

    def __init__(self, clock: WallClock) -> None:
        self.clock = clock
        self._commands: deque[Command] = deque()
        self._arrived = threading.Condition()

    def put(self, commands: Iterable[Command]) -> None:
        """All of them at once: the engine sees all or none."""
        with self._arrived:
            self._commands.extend(commands)
            self._arrived.notify()

    def poll(self) -> list[Command]:
        with self._arrived:
            due = list(self._commands)
            self._commands.clear()
            return due

    def wait(self, until: int) -> None:
        timeout = None if until == NEVER else max(0, until - self.clock.now()) / 1e9
        with self._arrived:
            self._arrived.wait_for(lambda: self._commands, timeout)


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


class LiveEngine:
    """Ask from any thread. The engine's own thread alone touches the scheduler.

    `keep` gets the journal's records, `rows` the ledger's, after every step; both run in the
    engine's thread. Rows that nobody takes are dropped, so that a server's memory stays flat.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        keep: Callable[[Record], object] = forgotten,
        rows: Callable[[list[StepRow], list[RequestRow]], object] = lambda steps, requests: None,
    ) -> None:
        self.clock = WallClock()
        self._inbox = LiveInbox(self.clock)
        self._engine = Engine(scheduler, Guarded(executor), self._inbox, self.clock, keep)
        self._rows = rows
        self._callers = Callers()
        # By event loop: what its callers have been told, which the engine's thread alone changes.
        self._told: WeakKeyDictionary[asyncio.AbstractEventLoop, Told] = WeakKeyDictionary()
        self._thread = threading.Thread(target=self._serve, name="headway-engine", daemon=True)
        self._thread.start()

    @property
    def load(self) -> Load:
        """As of the latest step."""
        return self._engine.load

    def submit(self, requests: Iterable[Request], caller: Caller) -> None:
        """All of them or, with RefusedError, none. Their events go to the caller."""
        asked = list(requests)
        self._callers.check_up()
        for request in asked:
            if isinstance(answer := admit(request, self.load, self.clock.now()), Refuse):
                raise RefusedError(answer.reason, answer.retry_at)
        self._callers.add([request.id for request in asked], caller)
        self._inbox.put([Add(request) for request in asked])

    def offer(self, requests: Iterable[Request], caller: Caller, enough: bool = False) -> None:
        """Each for itself: who is refused hears of it by an event, as of any other end.

        enough: nothing more will come for now. EngineDownError if none can be taken.
        """
        asked = list(requests)
        self._callers.add([request.id for request in asked], caller)
        self._inbox.put([*map(Add, asked), *([Enough()] if enough else [])])

    def cancel(self, ids: Iterable[str]) -> None:
        self._inbox.put([Cancel(id) for id in ids])

    def stop(self, id: str, keep: int) -> None:
        """The caller has seen the end in the text: so many generated tokens count."""
        self._inbox.put([Stop(id, keep)])

    def events(self, request: Request) -> Iterator[Event]:
        """Until one says finish. Leaving the iterator early cancels the request."""
        caller = QueueCaller()
        self.submit([request], caller)
        return self._listen(request.id, caller)

    def _listen(self, id: str, caller: QueueCaller) -> Iterator[Event]:
        finished = False
        try:
            while not finished:
                event = heard(caller.queue.get())
                finished = bool(event.finish)
                yield event
        finally:
            if not finished:
                self.cancel([id])

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """As events(), for an asyncio task; cancelling the task cancels the request."""
        caller = LoopCaller(self._told.setdefault(asyncio.get_running_loop(), []))
        self.submit([request], caller)
        finished = False
        try:
            while not finished:
                event = heard(await caller.queue.get())
                finished = bool(event.finish)
                yield event
        finally:
            if not finished:
                self.cancel([request.id])

    def close(self) -> None:
        """Finish what was accepted, refuse the rest, and end the thread."""
        self._inbox.put([Close()])
        self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._engine.scheduler.finished:
                events = self._engine.step()
                self._rows(*self._engine.scheduler.ledger.take())
                self._callers.tell(events)
        except BaseException as error:  # the thread's edge: nobody may wait for ever
            down = EngineDownError(f"the engine is down: {error or type(error).__name__}")
            down.__cause__ = error
            self._callers.fail(down)
            raise
        self._callers.fail(EngineDownError("the engine is closed"))


def heard(news: News) -> Event:
    """The event, or the engine's end as the caller's own exception."""
    if isinstance(news, EngineDownError):
        raise type(news)(str(news)) from news.__cause__
    return news
