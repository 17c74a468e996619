"""A call's answer as server-sent events, over plain ASGI: BaseHTTPMiddleware would hide a
disconnect.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.server.answering.call import SLOW, Call
from headway.server.http.direct_send import direct
from headway.server.http.disconnect import Client
from headway.server.http.errors import fault, note
from headway.server.http.exchange import EXCHANGE
from headway.server.protocol.chunks import DONE, WAITING, failed
from headway.server.protocol.problem import Problem

KEEPALIVE = 10.0  # seconds of silence before a comment is sent: proxies close silent connections
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # so that nginx passes each event on at once
}


async def stream_answer(call: Call, client: Client) -> Response:
    """Wait for the first token or for KEEPALIVE seconds, then return the stream. Raises Problem.

    This way a request dropped from its lane's line still gets its true status, and a relegated one
    its header. The response closes the client after everything was sent.
    """
    with suppress(TimeoutError):
        await asyncio.wait_for(call.wait(), KEEPALIVE)
    if call.problem:
        raise call.problem
    return EventStream(call, client)


async def stream_route(asking: Coroutine[Any, Any, Call], client: Client, route: str) -> Response:
    """As stream_answer, for a route. asking: returns the answering model's call once it has its
    first token. route: the route's name."""
    task = asyncio.create_task(asking)
    try:
        await asyncio.wait([task], timeout=KEEPALIVE)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        return WaitingStream(task, client, route)
    return await stream_answer(task.result(), client)


class WaitingStream(Response):
    """A route's stream that starts before the answering model is known. Its headers therefore do
    not name the model."""

    def __init__(self, task: asyncio.Task[Call], client: Client, route: str) -> None:
        super().__init__(b"", 200, HEADERS | {"x-headway-route": route})
        del self.headers["content-length"]
        self._task, self._client = task, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            while not self._task.done():
                await send({"type": "http.response.body", "body": WAITING, "more_body": True})
                await asyncio.wait([self._task], timeout=KEEPALIVE)
            try:
                call = self._task.result()
            except Exception as error:  # of any kind: a judge is the operator's
                problem = error if isinstance(error, Problem) else fault(error)
                note(problem)
                await send({"type": "http.response.body", "body": failed(problem) + DONE})
                if problem is not error:
                    raise  # to the log
            else:
                await EventStream(call, self._client, begun=True)(scope, receive, send)
        finally:
            self._task.cancel()
            self._client.close()


class EventStream(Response):
    """Streams a call's output. Each send waits for the client; meanwhile the call collects output.

    A call that has collected too much cancels the sending task, and the connection is cut.
    begun: whether the response's start has been sent already.
    """

    def __init__(self, call: Call, client: Client, begun: bool = False) -> None:
        super().__init__(b"", 200, HEADERS | call.headers)
        del self.headers["content-length"]
        self._call, self._client, self._begun = call, client, begun
        client.waited = 0
        self._loop = asyncio.get_running_loop()
        self._last_sent = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events from a task of their own. In the application's task, each token would
        resume through some twenty nested coroutines."""
        try:
            await asyncio.create_task(self._stream(send, direct(scope, send)))
            if self._is_slow and (exchange := scope.get("extensions", {}).get(EXCHANGE)):
                exchange.cut()
        finally:
            if self._timer:
                self._timer.cancel()
            self._call.out.taken()
            self._client.close()

    async def _stream(self, send_start: Send, send: Send) -> None:
        call, time = self._call, self._loop.time
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            if not self._begun:
                await send_start(start)
            if not (call.out or call.done):
                await send({"type": "http.response.body", "body": WAITING, "more_body": True})
            self._keep_alive()
            more = True
            while more:
                await call.out.wait(call.done)
                data = call.take()
                more = not (call.is_over or self._client.gone)
                if call.problem:
                    data += failed(call.problem) + DONE
                began = time()
                await send({"type": "http.response.body", "body": data, "more_body": more})
                self._last_sent = time()
                self._client.waited += int(1e9 * (self._last_sent - began))
        except asyncio.CancelledError:
            if not self._is_slow:
                raise

    @property
    def _is_slow(self) -> bool:
        """Whether the client has left too much of the answer."""
        return self._call.problem is not None and self._call.problem.code == SLOW

    def _keep_alive(self) -> None:
        """Send a comment if nothing was sent for KEEPALIVE seconds, and check again when the next
        may be due. A running answer can fall silent: a preempted request is recomputed."""
        if self._loop.time() >= self._last_sent + KEEPALIVE:
            self._call.out.beat()
            self._last_sent = self._loop.time()
        self._timer = self._loop.call_at(self._last_sent + KEEPALIVE, self._keep_alive)
