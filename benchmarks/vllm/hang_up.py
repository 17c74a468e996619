"""Callers of vLLM's server that give up waiting: middleware that hangs up in their place.

`headway bench` has no such callers. To the server it is the same: it sees a disconnect, and aborts
the request.
"""

import asyncio
import json
import os

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LIMITS = "HANG_UP_AFTER"  # a variable: seconds by lane, as JSON
OVER = b"the caller has hung up"


class HangUp:
    """ASGI middleware for `vllm serve --middleware`: a caller of a lane in LIMITS hangs up when its
    first token has not come so long after its request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.limits: dict[str, float] = json.loads(os.environ[LIMITS])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = dict(scope.get("headers", ())).get(b"x-headway-lane", b"").decode()
        if scope["type"] != "http" or lane not in self.limits:
            await self.app(scope, receive, send)
            return
        caller = Caller(self.limits[lane], receive, send)
        await self.app(scope, caller.receive, caller.send)
        await caller.end()


class Caller:
    """The connection of one, as the server sees it."""

    def __init__(self, limit: float, receive: Receive, send: Send) -> None:
        self._receive, self._send, self._loop = receive, send, asyncio.get_running_loop()
        self._until = self._loop.time() + limit
        self._asked = self._begun = self._has_token = self._has_left = False

    async def receive(self) -> Message:
        if not self._asked:
            message = await self._receive()
            self._asked = not message.get("more_body", False)
            return message
        leaves = asyncio.ensure_future(self._receive())  # it leaves by itself, at any time
        try:
            if not (self._has_token or self._has_left):
                await asyncio.wait([leaves], timeout=max(0.0, self._until - self._loop.time()))
            if leaves.done() or self._has_token:
                return await leaves
            self._has_left = True
            return {"type": "http.disconnect"}
        finally:
            leaves.cancel()

    async def send(self, message: Message) -> None:
        if self._has_left:
            return
        self._begun = True
        self._has_token = self._has_token or bool(message.get("body"))
        await self._send(message)

    async def end(self) -> None:
        """Release the real caller, if it counts as gone."""
        if not self._has_left:
            return
        if not self._begun:
            headers = [(b"content-length", str(len(OVER)).encode())]
            await self._send({"type": "http.response.start", "status": 503, "headers": headers})
        body = b"" if self._begun else OVER
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
