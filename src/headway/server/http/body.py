"""The bytes of requests, bounded while they come: of each, and of all together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.requests import Request

from headway.core.request import NEVER
from headway.server.config.sections.durations import SECOND
from headway.server.http.interruptible import Endable
from headway.server.intake.retry_after import SOON, jittered
from headway.server.protocol.deadlines import timeout
from headway.server.protocol.problem import Problem

LEAST = SECOND  # that a body has, whatever its client says: who is late then is so in a lane


class Bodies:
    """most: bytes of all that are here. time: nanoseconds for one to come. left: is told the size
    of each that has come.

    Where there are too many, the one that has held most for longest is refused, so that few large
    ones that do not end keep nobody out.
    """

    def __init__(self, most: int, time: int, left: Callable[[int], object]) -> None:
        self._most, self._time, self._left = most, time, left
        self._held = 0
        self._coming: dict[Coming, None] = {}

    @property
    def held(self) -> int:
        return self._held

    @asynccontextmanager
    async def of(self, request: Request, most: int) -> AsyncIterator[bytearray]:
        """Raises Problem: 413 beyond so many bytes, 415 for what is not said to be JSON, 408 for
        what comes too slowly, 429 where there is no room. Its bytes count until it is left."""
        _check(request, most)
        coming = Coming(min(self._time, max(LEAST, timeout(request.headers))))
        self._coming[coming] = None
        try:
            raw = await self._whole(request, most, coming)
            del self._coming[coming]
            yield raw
        finally:
            self._coming.pop(coming, None)
            self._held -= coming.size
            self._left(coming.size)

    async def _whole(self, request: Request, most: int, coming: "Coming") -> bytearray:
        seconds = None if coming.time == NEVER else coming.time / SECOND
        try:
            with coming.endable.stretch():
                async with asyncio.timeout(seconds):
                    return await self._read(request, most, coming)
        except TimeoutError:
            said = f"the body did not come within {seconds:g} s"
            if coming.time < self._time:  # the client's own limit
                raise Problem(408, said, code="deadline_exceeded", final=True) from None
            raise Problem(408, said, code="body_late") from None

    async def _read(self, request: Request, most: int, coming: "Coming") -> bytearray:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise _too_long(most)
            coming.size += len(part)
            self._held += len(part)
            while self._held > self._most:
                self._end_one(coming)
        return body

    def _end_one(self, by: "Coming") -> None:
        """Raises Problem if it is the one that asks for it."""
        now = asyncio.get_running_loop().time()
        largest = max(self._coming, key=lambda each: each.size * (now - each.began))
        said = "too much is being sent at once"
        problem = Problem(429, said, code="too_much_text", retry=jittered(SOON))
        if largest is by:
            raise problem
        del self._coming[largest]
        self._held -= largest.size
        largest.size = 0
        largest.endable.end(problem)


class Coming:
    """One body that is being read. time: nanoseconds that it may take."""

    def __init__(self, time: int) -> None:
        self.time, self.size = time, 0
        self.began = asyncio.get_running_loop().time()
        self.endable = Endable()


def _check(request: Request, most: int) -> None:
    """What can be said before it is read. Browsers ask before they send JSON to another site, and
    do not ask where it has no type."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind.strip().lower() != "application/json":
        said = f"not {kind[:80]!r}" if kind else "and the request has none"
        raise Problem(415, f"the content-type must be application/json, {said}")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and (len(declared) > 20 or int(declared) > most):
        raise _too_long(most)


def _too_long(most: int) -> Problem:
    return Problem(413, f"the body has more than {most} bytes", code="body_too_large")
