"""A call's answer over ASGI, as a stream or whole. Whoever leaves is out before the next step.

Plain ASGI: behind BaseHTTPMiddleware a client's leaving goes unseen.
"""

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.server.call import SLOW, Call
from headway.server.client import Client
from headway.server.protocol.chunks import DONE, WAITING, compact, failed

PATIENCE = 10.0  # seconds without a word before the stream begins all the same, with a comment
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would collect it
}


async def whole(call: Call, client: Client, headers: dict[str, str]) -> Response:
    """The one JSON object. Raises Problem."""
    await call.wait()
    if call.problem:
        raise call.problem
    client.leave()
    return Response(compact(call.whole()), 200, headers, "application/json")


async def streamed(call: Call, client: Client, headers: dict[str, str]) -> Response:
    """Waits for the first news, so that a request that expires in its line has its true status.

    Raises Problem. The client is the response's then: it is left when that has been sent.
    """
    with suppress(TimeoutError):
        await asyncio.wait_for(call.wait(), PATIENCE)
    if call.problem:
        raise call.problem
    return Stream(call, client, headers)


class Stream(Response):
    """Server-sent events. Each send waits for the client, and the call holds what comes meanwhile.

    A call that holds too much cancels this task, and uvicorn closes the connection.
    """

    def __init__(self, call: Call, client: Client, headers: dict[str, str]) -> None:
        super().__init__(b"", 200, HEADERS | headers)
        del self.headers["content-length"]
        self._call, self._client = call, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """In a task of its own: what is woken below an application's twenty coroutines enters each
        of them again, for every token."""
        try:
            await asyncio.create_task(self._stream(send))
        finally:
            self._client.leave()

    async def _stream(self, send: Send) -> None:
        call = self._call
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._patient(send)
            more = True
            while more:
                await call.wait()
                more = not call.done
                said = call.take()
                if call.problem:
                    said += failed(call.problem) + DONE
                await send({"type": "http.response.body", "body": said, "more_body": more})
        except asyncio.CancelledError:
            if not (call.problem and call.problem.code == SLOW):
                raise

    async def _patient(self, send: Send) -> None:
        """Until the first news: a proxy between would close what is silent for long."""
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(self._call.wait(), PATIENCE)
            await send({"type": "http.response.body", "body": WAITING, "more_body": True})
