"""BodyReader: reads request bodies, with a bound on each body and on all bodies held at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from starlette.requests import Request

from headway.core.request import NEVER
from headway.server.config.durations import SECOND
from headway.server.http.interruptible import Interruptible
from headway.server.protocol.deadlines import timeout
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import SOON, jittered

JSON = "application/json"
LEAST_TIME = SECOND  # a body always has this long; the lane enforces shorter client timeouts


class BodyReader:
    """Reads bodies, and counts the bytes of all bodies in use.

    When there are too many bytes, the incoming body with the largest size times age is refused, so
    that a few large bodies which never end keep no other client out.

    most: bytes of all bodies together. time: nanoseconds that one body may take to come.
    released: called with the size of each body that is no longer in use.
    """

    def __init__(self, most: int, time: int, released: Callable[[int], object]) -> None:
        self._most, self._time, self._released = most, time, released
        self._held = 0
        self._incoming: dict[IncomingBody, None] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes of all bodies in use."""
        return self._held

    @asynccontextmanager
    async def read(
        self, request: Request, most: int, kinds: Collection[str] = (JSON,)
    ) -> AsyncIterator[bytearray]:
        """The request's whole body, of at most `most` bytes. It counts as in use until the block
        exits. kinds: the content types accepted.

        Raises Problem: 408 if the body comes too slowly, 413 if it is too large, 415 if its type is
        none of these or it is compressed, 429 if too many bytes are held.
        """
        _check_header(request, most, kinds)
        body = IncomingBody(min(self._time, max(LEAST_TIME, timeout(request.headers))))
        self._incoming[body] = None
        try:
            raw = await self._read_in_time(request, most, body)
            del self._incoming[body]
            yield raw
        finally:
            self._incoming.pop(body, None)
            self._held -= body.size
            self._released(body.size)

    def passes(self, size: int) -> bool:
        """Whether a body of this many bytes, already received, may be used. It is held too briefly
        to be counted. False: leave the decision to `read`."""
        if self._held + size > self._most:
            return False
        self._released(size)
        return True

    async def _read_in_time(self, request: Request, most: int, body: "IncomingBody") -> bytearray:
        seconds = None if body.time == NEVER else body.time / SECOND
        try:
            with body.interruptible:
                async with asyncio.timeout(seconds):
                    return await self._read(request, most, body)
        except TimeoutError:
            message = f"the body did not come within {seconds:g} s"
            if body.time < self._time:  # the client's own limit
                raise Problem(408, message, code="deadline_exceeded", final=True) from None
            raise Problem(408, message, code="body_late") from None

    async def _read(self, request: Request, most: int, body: "IncomingBody") -> bytearray:
        raw = bytearray()
        async for part in request.stream():
            raw += part
            if len(raw) > most:
                raise _too_large(most)
            body.size += len(part)
            self._held += len(part)
            while self._held > self._most:
                self._refuse_largest(body)
        return raw

    def _refuse_largest(self, current: "IncomingBody") -> None:
        """Refuse the incoming body with the largest size times age. Raises Problem if that is the
        current one."""
        now = asyncio.get_running_loop().time()
        largest = max(self._incoming, key=lambda each: each.size * (now - each.began))
        message = "too much is being sent at once"
        problem = Problem(429, message, code="too_much_text", retry=jittered(SOON))
        if largest is current:
            raise problem
        del self._incoming[largest]
        self._held -= largest.size
        largest.size = 0
        largest.interruptible.interrupt(problem)


class IncomingBody:
    """A body being read. time: nanoseconds it may take. size: bytes so far."""

    def __init__(self, time: int) -> None:
        self.time, self.size = time, 0
        self.began = asyncio.get_running_loop().time()
        self.interruptible = Interruptible()


def _check_header(request: Request, most: int, kinds: Collection[str]) -> None:
    """Raises Problem for what is wrong by the header alone.

    The type must be one of `kinds`, such as JSON: a browser asks the server (CORS preflight) before
    a page may send that type to another site, but does not ask if there is no type.
    """
    headers = dict(reversed(request.scope["headers"]))  # lookups in starlette's Headers are slow
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if encoding.lower() not in ("identity", ""):
        why = f"the body must not be compressed, and its content-encoding is {encoding[:80]!r}"
        raise Problem(415, why, "content-encoding")
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0]
    if kind.strip().lower() not in kinds:
        given = f"not {kind[:80]!r}" if kind else "and the request has none"
        must = " or ".join(sorted(kinds))
        raise Problem(415, f"the content-type must be {must}, {given}")
    declared = headers.get(b"content-length", b"0").decode("latin-1")
    if declared.isdecimal() and (len(declared) > 20 or int(declared) > most):
        raise _too_large(most)


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body has more than {most} bytes", code="body_too_large")
