"""A call's answer over ASGI, as a stream or whole. Whoever leaves is out before the next step.

Plain ASGI: behind BaseHTTPMiddleware a client's leaving goes unseen.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.server.answering.call import SLOW, Call
from headway.server.http.disconnect import Client
from headway.server.protocol.chunks import DONE, WAITING, failed

PATIENCE = 10.0  # seconds without a word, and a comment is sent: a proxy would close what is silent
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would collect it
}


async def whole(call: Call, client: Client, headers: dict[str, str]) -> Response:
    """The one JSON object. Raises Problem.

    One with log-probabilities is sent in pieces. The client is that response's then: it is left
    when the last piece has been sent.
    """
    await call.wait()
    if call.problem:
        raise call.problem
    if call.is_scored:
        return Pieces(call.whole(), client, headers)
    client.leave()
    return Response("".join(call.whole()), 200, headers, "application/json")


async def streamed(call: Call, client: Client, headers: dict[str, str]) -> Response:
    """Waits for the first news, so that a request that expires in its line has its true status.

    Raises Problem. The client is the response's then: it is left when that has been sent.
    """
    with suppress(TimeoutError):
        await asyncio.wait_for(call.wait(), PATIENCE)
    if call.problem:
        raise call.problem
    return Stream(call, client, headers)


class Pieces(Response):
    """A long body, each piece of which is made when the one before it was sent; between two of them
    the others have their turn."""

    def __init__(self, pieces: Iterator[str], client: Client, headers: dict[str, str]) -> None:
        super().__init__(b"", 200, headers, "application/json")
        del self.headers["content-length"]
        self._pieces, self._client = pieces, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._send(send)
        finally:
            self._client.leave()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for piece in self._pieces:
            body = piece.encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Stream(Response):
    """Server-sent events. Each send waits for the client, and the call holds what comes meanwhile.

    A call that holds too much cancels this task, and uvicorn closes the connection.
    """

    def __init__(self, call: Call, client: Client, headers: dict[str, str]) -> None:
        super().__init__(b"", 200, HEADERS | headers)
        del self.headers["content-length"]
        self._call, self._client = call, client
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """In a task of its own: what is woken below an application's twenty coroutines enters each
        of them again, for every token."""
        try:
            await asyncio.create_task(self._stream(send))
        finally:
            if self._timer:
                self._timer.cancel()
            self._client.leave()

    async def _stream(self, send: Send) -> None:
        call = self._call
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if not (call.out or call.done):
                await send({"type": "http.response.body", "body": WAITING, "more_body": True})
            self._watch()
            more = True
            while more:
                await call.wait()
                said = call.take()
                more = not call.is_over
                if call.problem:
                    said += failed(call.problem) + DONE
                await send({"type": "http.response.body", "body": said, "more_body": more})
                self._sent = self._loop.time()
        except asyncio.CancelledError:
            if not (call.problem and call.problem.code == SLOW):
                raise

    def _watch(self) -> None:
        """From now on, also while an answer that has begun waits to be computed again."""
        if self._loop.time() >= self._sent + PATIENCE:
            self._call.out.beat()
            self._sent = self._loop.time()
        self._timer = self._loop.call_at(self._sent + PATIENCE, self._watch)
