"""DirectSend: lets a stream's chunks bypass the middleware, which only looks at a response's start.

Seven layers wrap `send`. Each of them would cost a coroutine per token.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

EXTENSION = "headway.send"  # in the scope's extensions


class DirectSend:
    """Middleware outside all others that wrap `send`: puts the server's `send` into the scope."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            scope.setdefault("extensions", {})[EXTENSION] = send
        return self._app(scope, receive, send)


def direct(scope: Scope, send: Send) -> Send:
    """The server's own `send`, for messages after the start. Without DirectSend: the given one."""
    found: Send = scope.get("extensions", {}).get(EXTENSION, send)
    return found
