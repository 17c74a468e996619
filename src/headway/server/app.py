"""The ASGI application: routes, errors, and the request id. Plain ASGI throughout, because a
client's leaving goes unseen behind BaseHTTPMiddleware.
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
from headway.server.http.routes_answers import ANSWERS, answer_routes
from headway.server.http.routes_state import probe_routes, state_routes
from headway.server.http.routes_text import text_routes
from headway.server.intake.service import Service
from headway.server.observe.metrics.metrics import measured

REQUEST_ID = b"x-request-id"
LONGEST_ID = 256  # bytes of one that is echoed
SEEN = ["retry-after", "retry-after-ms", "x-headway-lane", "x-request-id", "x-should-retry"]


class Documented(FastAPI):
    """Its /openapi.json is completed with the models of the bodies that handlers read."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI schema, completed on the first call and kept."""
        if not self.openapi_schema:
            self.openapi_schema = complete(super().openapi())
        return self.openapi_schema


def make_app(service: Service) -> FastAPI:
    """The application of a service. While the model is loading it answers 503, and /health 200."""
    app = Documented(
        title="headway",
        version=__version__,
        summary="An OpenAI-compatible server with a latency budget per endpoint.",
        docs_url=None,  # the pages would load their scripts from elsewhere
        redoc_url=None,
    )
    install_error_handlers(app)
    limits = service.config.server.limits
    body_time = service.config.server.connections.body_time
    bodies = BodyReader(limits.bodies_bytes, body_time, service.admission.trimmer.add)
    metrics = measured(service)
    app.state.bodies, app.state.metrics = bodies, metrics
    for router in (
        answer_routes(service, bodies),
        text_routes(service, bodies),
        state_routes(service),
        probe_routes(service, metrics),
    ):
        app.include_router(router)
    # The middleware that is added last hears of a request first.
    app.add_middleware(CallTimeLimit, exempt=ANSWERS, time=limits.call_time)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BrowserGuard, config=service.config)
    app.add_middleware(RequestId)
    if origins := service.config.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=SEEN,
        )
    return app


class RequestId:
    """Returns the client's X-Request-Id, or gives one to a request that has none or a long one.

    It is put into the request's headers and into `scope["state"]["request_id"]`. It is logged and
    traced, and a call can be cancelled by it. The server's own books never use it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        said = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
        id = said if 0 < len(said) <= LONGEST_ID else f"req-{uuid4().hex}".encode()
        others = [each for each in scope["headers"] if each[0] != REQUEST_ID]
        scope["headers"] = [*others, (REQUEST_ID, id)]
        scope.setdefault("state", {})["request_id"] = id.decode("latin-1")

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REQUEST_ID, id)]
            await send(message)

        await self.app(scope, receive, sent)
