"""DirectSend: lets a stream's chunks bypass the middleware, which only looks at a response's start.

Seven layers wrap `send`. Each of them would cost a coroutine per token.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

EXTENSION = "headway.send"  # in the scope's extensions


class DirectSend:
    """Middleware outside all others that wrap `send`: puts the server's `send` into the scope.

    It is taken out again at the end: the server's `send` leads back to the scope, and only the
    garbage collector would free such a cycle.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        extensions = scope.setdefault("extensions", {})
        extensions[EXTENSION] = send
        try:
            await self._app(scope, receive, send)
        finally:
            del extensions[EXTENSION]


def direct(scope: Scope, send: Send) -> Send:
    """The server's own `send`, for messages after the start. Without DirectSend: the given one."""
    found: Send = scope.get("extensions", {}).get(EXTENSION, send)
    return found
