"""A deadline for every call that is in no lane, and its end when its client goes."""

import asyncio
from math import inf

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.request import NEVER
from headway.server.config.sections.durations import SECOND
from headway.server.http.disconnect import gone
from headway.server.http.errors import answer
from headway.server.http.interruptible import Endable
from headway.server.protocol.deadlines import timeout
from headway.server.protocol.problem import Problem


class Attended:
    """own: paths that see to it themselves. time: nanoseconds, of which X-Headway-Timeout-Ms may
    leave less. What the call holds it gives back as it is cancelled."""

    def __init__(self, app: ASGIApp, own: frozenset[str], time: int) -> None:
        self._app, self._own, self._time = app, own, time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._own:
            return await self._app(scope, receive, send)
        try:
            limit = min(self._time, timeout(Headers(scope=scope)))
            await self._attend(scope, receive, send, limit)
        except Problem as problem:
            await answer(problem)(scope, receive, send)

    async def _attend(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        """Raises Problem, before an answer has begun."""
        seconds = inf if limit == NEVER else limit / SECOND
        heard = Heard(receive, scope["method"] in ("GET", "HEAD"))
        try:
            with heard.endable.stretch():
                async with asyncio.timeout(None if seconds == inf else seconds) as timer:

                    async def begins(message: Message) -> None:
                        if message["type"] == "http.response.start":  # what follows is on its way
                            timer.reschedule(None)
                            heard.leave()
                        await send(message)

                    await self._app(scope, heard.receive, begins)
        except TimeoutError:
            said = f"not answered within {seconds:g} s"
            raise Problem(408, said, code="deadline_exceeded", final=True) from None
        finally:
            heard.leave()


class Heard:
    """What a client sends, and that it goes. whole: nothing is read of it but that."""

    def __init__(self, receive: Receive, whole: bool) -> None:
        self.endable = Endable()
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        if whole:
            self._watch()

    async def receive(self) -> Message:
        """For the application, until it has all."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._watch()
        return message

    def leave(self) -> None:
        if self._watcher:
            self._watcher.cancel()
            self._watcher = None

    def _watch(self) -> None:
        if not self._watcher:
            self._watcher = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.endable.end(gone())
