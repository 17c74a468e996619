"""Forwarded: takes a client's address from a trusted proxy's headers."""

import os
from collections.abc import Awaitable
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

HEADERS = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
TRUSTED = "FORWARDED_ALLOW_IPS"  # uvicorn's own variable


class Forwarded:
    """The outermost middleware: uvicorn's ProxyHeadersMiddleware, skipped by requests without
    forwarding headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        trusted = os.environ.get(TRUSTED, "127.0.0.1")
        self._proxied = cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, app), trusted))

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        for name, _ in scope["headers"]:
            if name in HEADERS:
                return self._proxied(scope, receive, send)
        return self._app(scope, receive, send)
