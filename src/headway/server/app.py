"""The ASGI application: routes, error handlers, middleware, and the request id.

All middleware is plain ASGI: behind BaseHTTPMiddleware it goes unnoticed that a client has left.
"""

from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway import __version__
from headway.server.http.body import BodyReader
from headway.server.http.call_time import CallTimeLimit
from headway.server.http.errors import install_error_handlers
from headway.server.http.guard import BrowserGuard
from headway.server.http.head import HeadAsGet
from headway.server.http.openapi import complete
from headway.server.http.routes.answers import ANSWERS, answer_routes
from headway.server.http.routes.state import probe_routes, state_routes
from headway.server.http.routes.text import text_routes
from headway.server.http.routes.vectors import VECTORS, vector_routes
from headway.server.intake.service import Service
from headway.server.observe.metrics.metrics import attach_metrics

REQUEST_ID = b"x-request-id"
MAX_ID_BYTES = 256  # of a client's id that is echoed
EXPOSED_HEADERS = [
    "retry-after",
    "retry-after-ms",
    "x-headway-eta-ms",
    "x-headway-lane",
    "x-headway-relegated",
    "x-request-id",
    "x-should-retry",
]


class DocumentedApp(FastAPI):
    """FastAPI whose /openapi.json also has the models of the bodies that our handlers parse."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI schema. It is completed on the first call and kept."""
        if not self.openapi_schema:
            self.openapi_schema = complete(super().openapi())
        return self.openapi_schema


def make_app(service: Service) -> FastAPI:
    """The application of a service.

    While the model is loading, requests are answered with 503, but /health with 200.
    """
    app = DocumentedApp(
        title="headway",
        version=__version__,
        summary="An OpenAI-compatible server with a latency budget per endpoint.",
        docs_url=None,  # these pages would load scripts from other hosts
        redoc_url=None,
    )
    install_error_handlers(app)
    limits = service.config.server.limits
    body_time = service.config.server.connections.body_time
    bodies = BodyReader(limits.bodies_bytes, body_time, service.admission.trimmer.add)
    metrics = attach_metrics(service)
    app.state.bodies, app.state.metrics = bodies, metrics
    for router in (
        answer_routes(service, bodies),
        vector_routes(service, bodies),
        text_routes(service, bodies),
        state_routes(service),
        probe_routes(service, metrics),
    ):
        app.include_router(router)
    # The middleware that is added last sees a request first.
    app.add_middleware(CallTimeLimit, exempt=ANSWERS | VECTORS, time=limits.call_time)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BrowserGuard, config=service.config)
    app.add_middleware(RequestId)
    if origins := service.config.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
    return app


class RequestId:
    """Returns the client's X-Request-Id, or a new one if the client sent none or too long a one.

    The id is put into the request's headers and into `scope["state"]["request_id"]`. It is logged
    and traced, and a call can be cancelled by it. The server never uses it to identify a call.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
        id = given if 0 < len(given) <= MAX_ID_BYTES else f"req-{uuid4().hex}".encode()
        others = [each for each in scope["headers"] if each[0] != REQUEST_ID]
        scope["headers"] = [*others, (REQUEST_ID, id)]
        scope.setdefault("state", {})["request_id"] = id.decode("latin-1")

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REQUEST_ID, id)]
            await send(message)

        await self.app(scope, receive, send_with_id)
