"""A function's own process: its module, its batcher, and a pipe to the server.

Its threads: the event loop, those of the batcher and the function, and one for each direction of
the pipe. Bodies come and go as bytes, because the server knows none of the function's types.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.errors import EngineDownError, HeadwayError, SettingError, first_line
from headway.server.engine.messages import Failed, Progress
from headway.server.engine.own_process import set_up
from headway.server.functions.calls import TURN, FunctionCalls
from headway.server.functions.ledger.item_accounts import ItemAccounts, Staged
from headway.server.functions.messages import (
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
from headway.server.functions.target import Target, find
from headway.server.functions.watched import WatchedFunction
from headway.server.protocol.problem import Problem

TOGETHER = 256  # messages that are sent at once


def run(options: FunctionOptions, channel: Connection, words: Connection | None = None) -> None:
    """The process's main function. It returns once the process was told to close and has answered
    all requests. The process exits if the server is gone."""
    set_up(channel, words)
    sys.setswitchinterval(TURN)
    try:
        channel.send(Progress(f"importing {options.target}"))
        target, notes = in_lanes(find(options.target), options.name, options.lanes)
        staged = Staged() if options.tells_rows else None
        calls = FunctionCalls(target, staged)
        asyncio.run(FunctionProcess(calls, channel, staged).serve(notes))
    except HeadwayError as error:
        channel.send(Failed(error))
    except BaseException as error:  # the process's edge: tell the server and stderr
        channel.send(Failed(EngineDownError(f"the function is down: {first_line(error)}")))
        raise


def in_lanes(target: Target, name: str, lanes: Sequence[Lane]) -> tuple[Target, tuple[str, ...]]:
    """The target under its name and with the server's lanes, and notes for an operator. Raises
    SettingError if a window names a lane that does not exist."""
    settings, known = dict(target.settings), {lane.name: lane for lane in lanes}
    own = settings.get("lanes", {})
    for lane in settings.get("windows", {}):
        if lane not in known:
            raise SettingError(f"windows: there is no lane {lane!r}; there are {', '.join(known)}")
    notes: tuple[str, ...] = ()
    if own:
        notes = (f"its own lanes ({', '.join(own)}) do not apply: those of the server do",)
    settings["lanes"] = known
    return replace(target, name=name, settings=settings), notes


class FunctionProcess:
    """Answers the server's requests, all of them concurrently."""

    def __init__(
        self, calls: FunctionCalls, channel: Connection, staged: Staged | None = None
    ) -> None:
        """staged: None if no ledger is kept."""
        self._calls, self._channel, self._staged = calls, channel, staged
        self._watched = WatchedFunction(calls)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._out: SimpleQueue[Any] = SimpleQueue()
        if staged:
            calls.metrics.listeners.append(self._measure)

    async def serve(self, notes: tuple[str, ...]) -> None:
        """Serve until told to close, or until the batcher's engine is down, and answer all that was
        asked. Raises EngineDownError if the engine is down."""
        loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._channel.send(replace(self._calls.about, notes=notes))
        threading.Thread(target=self._listen, args=(loop,), daemon=True).start()
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        await self._closing.wait()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)  # cancelled ones, too
        down = self._calls.batcher.down  # before it is closed
        await asyncio.to_thread(self._calls.close)
        self._out.put(None)
        await asyncio.to_thread(writer.join)
        if down:
            raise EngineDownError(down)

    # -- the threads of the pipe

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while True:
                loop.call_soon_threadsafe(self._take, self._channel.recv())
        except (EOFError, OSError):
            os._exit(0)  # the server is gone, so no caller waits for an answer

    def _write(self) -> None:
        with suppress(OSError):  # the server is gone; the other thread handles that
            while (first := self._out.get()) is not None:
                self._channel.send([first, *self._waiting()])

    def _waiting(self) -> list[Any]:
        found = list[Any]()
        with suppress(Empty):
            while len(found) < TOGETHER and (message := self._out.get_nowait()) is not None:
                found.append(message)
            if len(found) < TOGETHER:  # the message was None, the end: leave it for `_write`
                self._out.put(None)
        return found

    # -- the engine's thread

    def _measure(self, steps: list[StepRow], items: list[RequestRow]) -> None:
        if steps or items:
            self._out.put(Measured(steps, self._calls.batcher.load))

    # -- on the loop

    def _take(self, message: Any) -> None:
        match message:
            case Ask():
                accounts = self._accounts(message.id)
                task = asyncio.create_task(self._answer(message, accounts))
                self._tasks[message.id] = task
                task.add_done_callback(lambda _: self._answered(message.id, accounts))
            case Cancel(id):
                if id in self._tasks:
                    self._tasks[id].cancel()
            case Look(id):
                lines = self._calls.batcher.load.lanes
                waiting = {name: each.waiting for name, each in lines.items()}
                self._out.put(Seen(id, list(self._calls.metrics.collect()), waiting))
            case ShowPage(now, id):
                self._out.put(PagePart(id, self._watched.view(now)))
            case Close():
                self._closing.set()

    def _accounts(self, id: int) -> ItemAccounts | None:
        if self._staged is None:
            return None
        return ItemAccounts(self._staged, lambda items: self._out.put(ItemsTold(id, items)))

    def _answered(self, id: int, accounts: ItemAccounts | None) -> None:
        del self._tasks[id]
        if accounts:
            accounts.close()
        if self._calls.batcher.down:  # the next process may do better
            self._closing.set()

    async def _answer(self, ask: Ask, accounts: ItemAccounts | None) -> None:
        try:
            if not self._calls.target.streams:
                self._out.put(Answer(ask.id, await self._calls.result(ask, accounts)))
                return
            async for event in self._calls.pieces(ask, accounts):
                self._out.put(Answer(ask.id, event, is_last=False))
            self._out.put(Answer(ask.id, b""))
        except Problem as problem:
            self._out.put(Refused.of(ask.id, problem))
        except Exception as error:  # the task's edge
            logging.getLogger("headway.functions").exception("a request could not be answered")
            why = f"the function's process has failed: {type(error).__name__}"
            self._out.put(Refused.of(ask.id, Problem(500, why, code="fault")))
