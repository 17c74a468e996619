"""FunctionCalls: a function's batcher, from the bytes of a request to those of its answer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from headway.batching.batcher import Batcher
from headway.core.request import Finish
from headway.errors import (
    DeadlineError,
    EngineDownError,
    PromptError,
    RefusedError,
    first_line,
)
from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.engine.handle import EngineState
from headway.server.functions.codecs import JSON, MSGPACK, NPY, checked, decode, encode
from headway.server.functions.ledger.item_accounts import (
    ItemAccount,
    ItemAccounts,
    PlainAccount,
    Staged,
)
from headway.server.functions.messages import About, Ask, Wishes
from headway.server.functions.metrics import FunctionMetrics
from headway.server.functions.target import Target
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.retry_after import LEAST, SOON, jittered

NO = "not_supported"
# Seconds for which a thread keeps the interpreter. A function that computes in Python holds up the
# event loop that long after each of the loop's system calls. With a shorter turn the threads switch
# so often that benchmarks.batcher_http has fewer calls a second: 2,290 with 1 ms, 2,380 with 2.
TURN = 0.002
LEAST_LEFT = 1e-9  # seconds: with this deadline an item expires at once; 0 would be none


class FunctionCalls:
    """Calls the function with the items of many requests. Use it on one event loop's thread."""

    def __init__(self, target: Target, staged: Staged | None = None) -> None:
        """staged: None if no ledger is kept. Raises SettingError for settings that do not fit."""
        self.target, self.metrics = target, FunctionMetrics(target.name)
        told = staged.take if staged else None
        self.batcher = Batcher(
            target.function, rows=self.metrics.rows, staged=told, **target.settings
        )
        self.metrics.load = lambda: self.batcher.load
        item, result = target.schemas
        self.about = About(
            target.name,
            target.summary,
            target.streams,
            self.batcher.settings.size,
            {name: each for name, each in item.items() if name != "$defs"},
            {name: each for name, each in result.items() if name != "$defs"},
            target.models(),
        )

    @property
    def state(self) -> EngineState:
        return EngineState.DOWN if self.batcher.down else EngineState.READY

    def close(self) -> None:
        """Call the function with all waiting items, then end its thread."""
        self.batcher.close()

    async def result(self, ask: Ask, accounts: ItemAccounts | None) -> bytes:
        """The result of an item, or the results of several items in their order, where an item that
        fails has an `error`. accounts: told what became of the items; None if no ledger is kept.
        Raises Problem."""
        target, value = self.target, decode(ask.body, ask.kind)
        if not ask.most:
            account = _account(accounts)
            result = await self._call(self._item(value), ask.wishes, account)
            return self._encoded(result, ask.accept)
        if not isinstance(value, list):
            raise wrong("the body must be a list of items")
        if ask.accept == NPY:
            why = f"the results of a list cannot be {NPY}: accept {JSON} or {MSGPACK}"
            raise wrong(why, "accept", NO)
        if len(value) > ask.most:
            raise wrong(f"{len(value)} items, where {ask.most} are the most of one call")
        items = [checked(each, target.item, target.arrays, str(i)) for i, each in enumerate(value)]
        called = await self._call_each(items, ask.wishes, accounts)
        try:
            return self._encoded({"results": [each.entry for each in called]}, ask.accept)
        except Problem:  # so look for the results that cannot be encoded
            found = [self._encodable(each, ask.accept) for each in called]
            return self._encoded({"results": found}, ask.accept)

    async def pieces(self, ask: Ask, accounts: ItemAccounts | None) -> AsyncGenerator[bytes]:
        """The pieces of an item as server-sent events, without [DONE]. Raises Problem, also after
        some of them."""
        item, (lane, deadline) = self._item(decode(ask.body, ask.kind)), ask.wishes
        account = _account(accounts)
        pieces = self.batcher.astream(item, lane=lane, deadline=deadline, account=account)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield b"data: " + self._encoded(piece, JSON) + b"\n\n"
        except Exception as error:  # of any kind: the function is the user's
            problem = self._problem(error, lane, account)
            if problem is error:  # a piece that cannot be encoded
                raise
            raise problem from error

    def _item(self, value: Any) -> Any:
        return checked(value, self.target.item, self.target.arrays)

    async def _call(self, item: Any, wishes: Wishes, account: "AnyAccount") -> Any:
        """The item's result. Raises Problem."""
        lane, deadline = wishes
        try:
            return await self.batcher.acall(item, lane=lane, deadline=deadline, account=account)
        except Exception as error:  # of any kind: the function is the user's
            raise self._problem(error, lane, account) from error

    async def _call_each(
        self, items: Sequence[Any], wishes: Wishes, accounts: ItemAccounts | None
    ) -> list["_Called"]:
        """The result of each item, or the Problem that it has instead.

        At most half as many items as may wait in the lane are under way at a time, so that one list
        never fills the lane. The deadline counts from now for all of them. Raises Problem if there
        is no such lane.
        """
        lines = self.batcher.load.lanes
        lane = wishes.lane or next(iter(lines))
        if lane not in lines:
            raise wrong(f"there is no lane {lane!r}; there are {', '.join(lines)}", code=NO)
        line = lines[lane]
        room = asyncio.Semaphore(max(1, line.lane.max_waiting // 2))
        begun = clock.now()

        async def call(item: Any) -> _Called:
            async with room:
                account = _account(accounts)
                try:
                    left = _left(wishes, clock.now() - begun)
                    return _Called(await self._call(item, left, account), account)
                except Problem as problem:
                    return _Called(problem, account)

        return await asyncio.gather(*map(call, items))

    def _encoded(self, value: Any, kind: str) -> bytes:
        """The body of a result. Raises Problem if the result cannot be encoded as this kind."""
        try:
            return encode(value, kind)
        except Exception as error:  # pydantic, msgpack and numpy raise many kinds
            why = f"{self.target.name} returned what is no {kind}: {error}"
            raise Problem(500, why, code="function_error") from error

    def _encodable(self, called: "_Called", kind: str) -> Any:
        """The item's entry in the results. If it cannot be encoded, this is its error, which its
        account gets too."""
        try:
            self._encoded(called.entry, kind)
        except Problem as problem:
            called.account.code = problem.code
            return problem.body
        return called.entry

    def _problem(self, error: Exception, lane: str, account: "AnyAccount") -> Problem:
        """The Problem to answer an error with; the item's account gets its code. lane: as the item
        named it; may be empty."""
        is_own = account.row is not None and account.row.finish is Finish.ERROR
        problem = self._own_problem(error) if is_own else self._problem_of(error, lane)
        account.code = problem.code
        return problem

    def _own_problem(self, error: Exception) -> Problem:
        """The Problem of an error that the function raised, also if it is one of headway's: a line
        or a deadline of its own is not the client's."""
        if isinstance(error, Problem | PromptError):
            return self._problem_of(error, "")
        what = f"{type(error).__name__}: {first_line(error)}"
        return Problem(500, f"{self.target.name} failed: {what}", code="function_error")

    def _problem_of(self, error: Exception, lane: str) -> Problem:
        match error:
            case Problem():
                return error
            case RefusedError():
                now = clock.now()
                self.metrics.refuse(self.batcher.lane_of(lane), now)
                wait = max(LEAST, (error.retry_at - now) / SECOND)
                return Problem(429, str(error), code="lane_full", retry=jittered(wait))
            case DeadlineError():
                return Problem(408, str(error), code="deadline_exceeded", final=True)
            case EngineDownError():
                return Problem(503, str(error), code="engine_down", retry=jittered(SOON))
            case PromptError():
                return wrong(str(error), code="invalid_item")
        return self._own_problem(error)


AnyAccount = ItemAccount | PlainAccount


def _account(accounts: ItemAccounts | None) -> AnyAccount:
    """The account of one more item. accounts: None if no ledger is kept."""
    return accounts.add() if accounts else PlainAccount()


class _Called(NamedTuple):
    """An item of a list that was called."""

    value: Any  # its result, or the Problem that it has instead
    account: AnyAccount

    @property
    def entry(self) -> Any:
        """Its entry in the results."""
        return self.value.body if isinstance(self.value, Problem) else {"result": self.value}


def _left(wishes: Wishes, passed: int) -> Wishes:
    """The wishes of an item whose list came `passed` nanoseconds ago."""
    if not wishes.deadline:
        return wishes
    return wishes._replace(deadline=max(wishes.deadline - passed / SECOND, LEAST_LEFT))
