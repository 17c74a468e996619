"""FunctionService: a batcher behind HTTP, and the answers to what goes wrong."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from headway.batching.batcher import Batcher
from headway.core.request import NEVER
from headway.errors import (
    DeadlineError,
    EngineDownError,
    PromptError,
    RefusedError,
    SettingError,
    first_line,
)
from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.config.sections.keys import KeySettings
from headway.server.functions.metrics import FunctionMetrics
from headway.server.functions.target import Target
from headway.server.intake.access_record import access_record
from headway.server.intake.concurrency import Permit, permit
from headway.server.intake.keys import KeyRing
from headway.server.protocol.deadlines import timeout
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.retry_after import LEAST, SOON, jittered

LANE, NO = "x-headway-lane", "not_supported"


class FunctionService:
    """Calls the function with the items of many requests. On the event loop's thread."""

    def __init__(self, target: Target, keys: Sequence[KeySettings] = ()) -> None:
        """Raises SettingError for settings that do not go together."""
        self.target, self.metrics = target, FunctionMetrics(target.name)
        self.batcher = Batcher(target.function, rows=self.metrics.rows, **target.settings)
        self.metrics.load = lambda: self.batcher.load
        lanes = list(self.batcher.settings.lanes)
        self.keys = KeyRing(_checked(keys), lanes, lanes[0])
        self.open = 0  # requests that are being answered
        self.draining = False

    def close(self) -> None:
        """Call the function with all that wait, then end its thread."""
        self.batcher.close()

    def admit(self, headers: Mapping[str, str]) -> Permit:
        """Whoever sends these headers may have one more request; the permit ends with it. Raises
        Problem."""
        self.check_open()
        return permit(self.keys, self.keys.caller(headers))

    def check_open(self) -> None:
        """Raises Problem once the server drains."""
        if self.draining:
            message = "the server is shutting down and takes no more"
            raise Problem(503, message, code="draining", retry=jittered(SOON))

    async def call(self, item: Any, headers: Mapping[str, str]) -> Any:
        """The item's result. Raises Problem."""
        try:
            return await self.batcher.acall(item, **self._wishes(headers))
        except Exception as error:  # of any kind: the function is the user's
            raise self.problem(error) from error

    async def call_each(self, items: Sequence[Any], headers: Mapping[str, str]) -> list[Any]:
        """Of each item its result, or the Problem that it has instead.

        No more of them wait at a time than half of what the lane holds, so that a list alone never
        fills it. Raises Problem if there is no such lane.
        """
        lines = self.batcher.load.lanes
        lane = headers.get(LANE) or next(iter(lines))
        if lane not in lines:
            raise wrong(f"there is no lane {lane!r}; there are {', '.join(lines)}", code=NO)
        line = lines[lane]
        room = asyncio.Semaphore(max(1, line.lane.max_waiting // 2))

        async def call(item: Any) -> Any:
            async with room:
                return await self.call(item, headers)

        return await asyncio.gather(*map(call, items), return_exceptions=True)

    async def pieces(self, item: Any, headers: Mapping[str, str]) -> AsyncIterator[Any]:
        """The item's pieces. Raises Problem."""
        try:
            async for piece in self.batcher.astream(item, **self._wishes(headers)):
                yield piece
        except Exception as error:  # of any kind: the function is the user's
            raise self.problem(error) from error

    def _wishes(self, headers: Mapping[str, str]) -> dict[str, Any]:
        lane = access_record().lane = headers.get(LANE, "")
        limit = timeout(headers)
        return {"lane": lane, "deadline": 0 if limit == NEVER else limit / SECOND}

    def problem(self, error: Exception) -> Problem:
        """The answer to an error."""
        match error:
            case Problem():
                return error
            case RefusedError():
                self.metrics.refused += 1
                wait = max(LEAST, (error.retry_at - clock.now()) / SECOND)
                return Problem(429, str(error), code="lane_full", retry=jittered(wait))
            case DeadlineError():
                return Problem(408, str(error), code="deadline_exceeded", final=True)
            case EngineDownError():
                return Problem(503, str(error), code="engine_down", retry=jittered(SOON))
            case PromptError():
                return wrong(str(error), code="invalid_item")
            case SettingError():
                return wrong(str(error), code=NO)
        what = f"{type(error).__name__}: {first_line(error)}"
        return Problem(500, f"{self.target.name} failed: {what}", code="function_error")


def _checked(keys: Sequence[KeySettings]) -> Sequence[KeySettings]:
    """Raises SettingError for what a key of a function cannot have."""
    for key in keys:
        for name in ("lanes", "default_lane", "tokens_per_minute", "weight"):
            if name in key.model_fields_set:
                raise SettingError(f"keys: {key.name}: a function's keys have no {name}")
    return keys
