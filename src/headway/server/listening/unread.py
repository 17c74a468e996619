"""Unread: middleware that reads the rest of a body before the connection is closed."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINGER = 2.0  # seconds for the rest of a body whose request has been answered


class Unread:
    """Of a request after which its connection is closed, and which is answered before its body has
    come, the rest is read and discarded first. The kernel resets a connection that is closed with
    bytes unread, and the reset may overtake the answer.

    Where the connection goes on, uvicorn discards the rest.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["method"] != "GET" and _is_last(scope):
            return self._answer(scope, receive, send)
        return self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        more = True  # of the body

        async def receive_counted() -> Message:
            nonlocal more
            message = await receive()
            more = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def send_before(message: Message) -> None:
            is_end = message["type"] == "http.response.body" and not message.get("more_body")
            if is_end and more:
                await send({**message, "more_body": True})
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGER):
                        while more:
                            await receive_counted()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(scope, receive_counted, send_before)


def _is_last(scope: Scope) -> bool:
    """Whether the connection is closed after this request."""
    if scope["http_version"] == "1.0":
        return True
    fields = [value for name, value in scope["headers"] if name == b"connection"]
    return any(b"close" in value.lower() for value in fields)
