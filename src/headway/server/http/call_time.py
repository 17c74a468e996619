"""Middleware for calls outside lanes: a time limit, and an end when the client disconnects."""

import asyncio
from math import inf

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.request import NEVER
from headway.server.config.durations import SECOND
from headway.server.http.disconnect import client_gone, until_disconnect
from headway.server.http.errors import error_response
from headway.server.http.interruptible import Interruptible
from headway.server.intake.keys import acting_tenant
from headway.server.protocol.deadlines import timeout
from headway.server.protocol.problem import Problem


class CallTimeLimit:
    """Cancels a call that takes too long or whose client has disconnected. The call then releases
    what it holds.

    exempt: paths with limits of their own. A job's requests have the job's limits instead.
    time: nanoseconds; X-Headway-Timeout-Ms may set a shorter limit.
    """

    def __init__(self, app: ASGIApp, exempt: frozenset[str], time: int) -> None:
        self._app, self._exempt, self._time = app, exempt, time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt or acting_tenant():
            return await self._app(scope, receive, send)
        try:
            limit = min(self._time, timeout(Headers(scope=scope)))
            await self._answer(scope, receive, send, limit)
        except Problem as problem:
            await error_response(problem)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        """Run the application. Raises Problem at the limit, or when the client disconnects, if no
        answer has begun by then."""
        seconds = inf if limit == NEVER else limit / SECOND
        watch = DisconnectWatch(receive, has_body=scope["method"] not in ("GET", "HEAD"))
        try:
            with watch.interruptible:
                async with asyncio.timeout(None if seconds == inf else seconds) as timer:

                    async def send_untimed(message: Message) -> None:
                        if message["type"] == "http.response.start":  # the answer is ready
                            timer.reschedule(None)
                            watch.stop()
                        await send(message)

                    await self._app(scope, watch.receive, send_untimed)
        except TimeoutError:
            raise too_late(limit) from None
        finally:
            watch.stop()


def too_late(limit: int) -> Problem:
    """The answer to a call that took longer than this limit, in nanoseconds."""
    text = f"not answered within {limit / SECOND:g} s"
    return Problem(408, text, code="deadline_exceeded", final=True)


class CallTimer:
    """Interrupts calls that exceed one common limit. A single timer serves all calls, since their
    limits expire in the order in which the calls came."""

    def __init__(self, limit: int) -> None:
        """limit: nanoseconds; NEVER: none."""
        self.limit = limit
        self._ends: dict[Interruptible, float] = {}  # each call's end in loop time, earliest first
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: Interruptible) -> None:
        """Start timing a call."""
        if self.limit == NEVER:
            return
        loop = asyncio.get_running_loop()
        self._ends[call] = end = loop.time() + self.limit / SECOND
        if not self._timer:
            self._timer = loop.call_at(end, self._interrupt)

    def remove(self, call: Interruptible) -> None:
        """Stop timing a call, which has ended."""
        self._ends.pop(call, None)
        if self._timer and not self._ends:  # else the loop would keep the timer until its time
            self._timer.cancel()
            self._timer = None

    def _interrupt(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        for call, end in [*self._ends.items()]:
            if end > loop.time():
                self._timer = loop.call_at(end, self._interrupt)
                return
            del self._ends[call]
            call.interrupt(too_late(self.limit))


class DisconnectWatch:
    """Passes a client's messages to the application. Once the whole body has come, it interrupts
    the call when the client disconnects. Without a body it watches from the start."""

    def __init__(self, receive: Receive, has_body: bool) -> None:
        self.interruptible = Interruptible()
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        if not has_body:
            self._start()

    async def receive(self) -> Message:
        """The next message; the application calls this instead of the server's `receive`."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._start()
        return message

    def stop(self) -> None:
        """Stop watching. A second call does nothing."""
        if self._watcher:
            self._watcher.cancel()
            self._watcher = None

    def _start(self) -> None:
        if not self._watcher:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await until_disconnect(self._receive)
        self.interruptible.interrupt(client_gone())
