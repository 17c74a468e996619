"""FunctionClient: the server's half of a function's process."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from headway.errors import DrainingError, EngineDownError, HeadwayError
from headway.server.answering.call import down
from headway.server.dashboard.view import ModelView
from headway.server.engine.child_process import ChildProcess, manner
from headway.server.engine.handle import EngineState
from headway.server.engine.messages import Failed, Progress
from headway.server.functions.ledger.function_book import FunctionBook
from headway.server.functions.ledger.item_rows import FunctionCall
from headway.server.functions.messages import (
    About,
    Answer,
    Ask,
    Cancel,
    Close,
    FunctionOptions,
    ItemsTold,
    Look,
    Measured,
    PagePart,
    Refused,
    Seen,
    ShowPage,
)
from headway.server.functions.process import run
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import SOON, jittered

SEEN = 1.0  # seconds for the process to report its state
BESIDES = 1_024  # bytes that a message takes besides the body

News = Answer | Refused | Seen | PagePart | Problem


class Asked:
    """The process's messages about one request, as they come."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[News] = asyncio.Queue()
        self.ended = False  # nothing more comes

    async def next(self) -> Answer | Seen | PagePart:
        """The next message. Raises Problem."""
        news = await self.queue.get()
        self.ended = not isinstance(news, Answer) or news.is_last
        if isinstance(news, Refused):
            raise news.problem
        if isinstance(news, Problem):
            raise news
        return news


class FunctionClient:
    """A function in its own process (server.engine.restarts.Client). Start it once, and use it on
    the event loop's thread."""

    def __init__(
        self,
        options: FunctionOptions,
        echo: Callable[[str], object] | None,
        most: int,
        book: FunctionBook | None = None,
    ) -> None:
        """most: bytes of bodies that may wait for the process to take them. book: None if no ledger
        is kept."""
        self._options, self._echo, self._most, self._book = options, echo, most, book
        self.state, self.down = EngineState.LOADING, ""
        self._numbers = count(1)
        self._asked: dict[int, Asked] = {}
        self._calls: dict[int, FunctionCall] = {}  # the book will be told of their items
        self._process: ChildProcess | None = None
        self._error: HeadwayError | None = None  # the process's last words
        self._leaving = False
        self._over, self._idle = asyncio.Event(), asyncio.Event()

    @property
    def pid(self) -> int:
        """The process's id; 0: there is none."""
        return self._process.pid if self._process else 0

    async def start(self, progress: Callable[[str], object] = lambda text: None) -> About:
        """Import the function. Raises the error that prevented it."""
        assert not self._process, "it is started once"
        self._progress = progress
        self._about: asyncio.Future[About] = asyncio.get_running_loop().create_future()
        about = self._options, self._take, self._ended, self._echo
        self._process = ChildProcess(run, *about, daemon=False)  # it may start processes itself
        return await asyncio.shield(self._about)

    async def answer(self, ask: Ask, call: FunctionCall | None = None) -> bytes:
        """The body of the answer. call: None if no ledger is kept. Raises Problem."""
        with self._asking(ask, call) as asked:
            news = await asked.next()
        assert isinstance(news, Answer)
        return news.body

    async def events(self, ask: Ask, call: FunctionCall | None = None) -> AsyncGenerator[bytes]:
        """The events of a stream. call: as of `answer`. Raises Problem, also after some events."""
        with self._asking(ask, call) as asked:
            while not asked.ended:
                news = await asked.next()
                assert isinstance(news, Answer)
                if news.body:
                    yield news.body

    async def look(self) -> Seen | None:
        """The function's state now; None: the process does not answer in time."""
        news = await self._said(Look(0))
        assert news is None or isinstance(news, Seen)
        return news

    async def show(self, now: int) -> ModelView | None:
        """What the live page shows of it; None: the process does not answer in time."""
        news = await self._said(ShowPage(now))
        assert news is None or isinstance(news, PagePart)
        return news.view if news else None

    async def _said(self, question: Look | ShowPage) -> Answer | Seen | PagePart | None:
        with suppress(TimeoutError, Problem):
            async with asyncio.timeout(SEEN):
                with self._asking(question) as asked:
                    return await asked.next()
        return None

    @contextmanager
    def _asking(
        self, ask: Ask | Look | ShowPage, call: FunctionCall | None = None
    ) -> Iterator["Asked"]:
        """Send a request. Leaving the block before its last message cancels it. Raises Problem."""
        if self.state is EngineState.DOWN or not self._process:
            raise down(EngineDownError(self.down))
        size = BESIDES + (len(ask.body) if isinstance(ask, Ask) else 0)
        if (waits := self._process.unsent) and waits + size > self._most:  # one alone passes
            why = f"{self._options.name} does not take its calls: too many bytes of them wait"
            raise Problem(429, why, code="too_much_text", retry=jittered(SOON))
        id, asked = next(self._numbers), Asked()
        self._asked[id] = asked
        if call and self._book and isinstance(ask, Ask):
            self._calls[id] = call
            self._book.asked(call, ask.wishes.lane)
        self._process.send(ask._replace(id=id), size)
        try:
            yield asked
        finally:
            del self._asked[id]
            if not asked.ended:
                self._process.send(Cancel(id))
            if not self._asked:
                self._idle.set()

    # -- its life

    async def over(self) -> None:
        """Wait until it is down or gone."""
        await self._over.wait()

    async def end(self) -> bool:
        """Kill the process. Returns whether it is gone."""
        return await self._process.end() if self._process else True

    def fail(self, fault: str) -> None:
        """Mark the function as down, and tell every caller why."""
        self.down, self.state = self.down or fault, EngineState.DOWN
        self._over.set()
        self._tell_all(EngineDownError(self.down))

    async def drain(self, timeout: float, whole: float = 0.0) -> None:
        """Finish what was accepted, then close. whole: as in EngineClient; not used here."""
        self._leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._asked:
                    self._idle.clear()
                    await self._idle.wait()
                if self._process:
                    self._process.send(Close())
                    await self._process.gone.wait()
        await self.close()

    async def close(self) -> None:
        """End the process now. Waiting callers get a Problem: the server has closed."""
        self._leave()
        self._tell_all(DrainingError("the server has closed"))
        await self.end()

    def _leave(self) -> None:
        self._leaving = True
        if self.state is not EngineState.DOWN:
            self.state = EngineState.DRAINING

    def _tell_all(self, error: EngineDownError) -> None:
        """Give each caller its own Problem: a shared one would gather the tracebacks of all."""
        for asked in self._asked.values():
            asked.queue.put_nowait(down(error))

    # -- what it says

    def _take(self, message: Any) -> None:
        match message:
            case list():
                for each in message:
                    self._hear(each)
            case Progress(text):
                self._progress(text)
            case Failed(error):
                self._error = error
            case About() if not self._leaving:
                self.state = EngineState.READY
                if not self._about.cancelled():
                    self._about.set_result(message)

    def _hear(self, message: Answer | Refused | Seen | PagePart | Measured | ItemsTold) -> None:
        if isinstance(message, Measured):
            if self._book:
                self._book.measured(*message)
        elif isinstance(message, ItemsTold):
            if self._book:
                self._book.told(self._calls.pop(message.id), message.items)
        elif asked := self._asked.get(message.id):
            asked.queue.put_nowait(message)

    def _ended(self, code: int | None) -> None:
        why = f"the function's process has died: {manner(code)}"
        error = self._error or EngineDownError(why)
        self._over.set()
        if not self._about.done():
            self._about.set_exception(error)
            self._about.exception()  # retrieved here: the caller of `start` may have left
        if not self._leaving or self._error:
            self.fail(str(error))
        self._tell_all(DrainingError("the function is closed"))
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if self._book:
                self._book.lost(call)
