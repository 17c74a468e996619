"""What all our applications share: a complete OpenAPI page, middleware, the request id."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.server.config.config import ServerConfig
from headway.server.http.call_time import CallTimeLimit
from headway.server.http.guard import BrowserGuard
from headway.server.http.head import HeadAsGet
from headway.server.http.openapi import complete
from headway.server.intake.access_record import recorded

REQUEST_ID = b"x-request-id"
UPLOADS = frozenset({"/v1/files"})  # uploads may take long, as long as data keeps coming
_ids = Random()  # seeded by the system once: an id is no secret
MAX_ID_BYTES = 255  # the longest client id that is echoed, and kept in the ledger
EXPOSED_HEADERS = [
    "location",
    "preference-applied",
    "retry-after",
    "retry-after-ms",
    "x-headway-eta-ms",
    "x-headway-lane",
    "x-headway-relegated",
    "x-headway-route",
    "x-headway-route-accepted",
    "x-headway-route-decision",
    "x-headway-route-target",
    "x-headway-spend-remaining",
    "x-headway-version",
    "x-request-id",
    "x-should-retry",
]


class DocumentedApp(FastAPI):
    """FastAPI whose /openapi.json also has the models of the bodies that our handlers parse."""

    models: Callable[[], Mapping[str, Any]]  # by name
    # Answers some requests itself, bypassing the framework. Returns whether it did.
    shortcut: Callable[[Scope], Awaitable[bool]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with recorded() as record:
            try:
                if self.shortcut is None or not await self.shortcut(scope):
                    await super().__call__(scope, receive, send)
            finally:
                record.sent()

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI schema. It is completed on the first call and kept."""
        if not self.openapi_schema:
            self.openapi_schema = complete(super().openapi(), self.models())
        return self.openapi_schema


def add_middleware(app: FastAPI, config: ServerConfig, exempt: Collection[str]) -> None:
    """Add the middleware that every request passes; the last added sees a request first. exempt:
    paths with time limits of their own."""
    app.add_middleware(CallTimeLimit, exempt=frozenset(exempt), time=config.server.limits.call_time)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BrowserGuard, config=config)
    app.add_middleware(RequestId)
    if origins := config.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )


def id_of(given: bytes) -> bytes:
    """A request's id: the client's, or a new one if the client's is missing or too long."""
    return given if 0 < len(given) <= MAX_ID_BYTES else b"req-%032x" % _ids.getrandbits(128)


class RequestId:
    """Returns the client's X-Request-Id, or a new id if the client's is missing or too long.

    The id goes into the request's headers and into `scope["state"]["request_id"]`. It is logged and
    traced, and a client can cancel calls by it. The server itself never identifies calls by it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
        id = id_of(given)
        others = [each for each in scope["headers"] if each[0] != REQUEST_ID]
        scope["headers"] = [*others, (REQUEST_ID, id)]
        scope.setdefault("state", {})["request_id"] = id.decode("latin-1")

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REQUEST_ID, id)]
            await send(message)

        await self.app(scope, receive, send_with_id)
