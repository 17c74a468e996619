"""A way for the chunks of a stream past the middleware, which only looks at a response's start.

Seven layers wrap `send`. Each of them would cost every token a coroutine.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

EXTENSION = "headway.send"  # in the scope's extensions


class DirectSend:
    """Middleware, the outermost: puts the server's own `send` into the scope."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            scope.setdefault("extensions", {})[EXTENSION] = send
        return self._app(scope, receive, send)


def direct(scope: Scope, send: Send) -> Send:
    """The server's own `send`, for messages after the start; without DirectSend the given one."""
    found: Send = scope.get("extensions", {}).get(EXTENSION, send)
    return found
