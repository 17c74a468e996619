"""DirectCalls: answers calls before the framework's router."""

from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.functions.routes import Answering
from headway.server.http.disconnect import client_gone
from headway.server.http.errors import error_response
from headway.server.protocol.problem import Problem


class DirectCalls:
    """The innermost middleware. It answers calls before the framework's router, whose layers take
    twice as long as all the rest."""

    def __init__(self, app: ASGIApp, paths: Mapping[str, Answering]) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        if not (answering := self._paths.get(scope["path"])):
            return await self._app(scope, receive, send)
        try:
            response = await answering(Request(scope, receive))
        except Problem as problem:
            response = error_response(problem)
        except ClientDisconnect:  # its body was still coming
            response = error_response(client_gone())
        await response(scope, receive, send)
