"""Middleware that answers HEAD as GET."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadAsGet:
    """Shows HEAD to the application as GET. uvicorn still knows it is HEAD and omits the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
