"""The ASGI application of a function."""

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from headway import __version__
from headway.server.config.config import ServerConfig
from headway.server.functions.routes import DirectCalls, FunctionRoutes, state_routes
from headway.server.functions.service import FunctionService
from headway.server.heap import BodyTrimmer
from headway.server.http.application import EXPOSED_HEADERS, DocumentedApp, RequestId
from headway.server.http.body import BodyReader
from headway.server.http.call_time import CallTimeLimit
from headway.server.http.errors import install_error_handlers
from headway.server.http.guard import BrowserGuard
from headway.server.http.head import HeadAsGet


def make_app(service: FunctionService, config: ServerConfig) -> FastAPI:
    """The application. Calls take no longer than `server.limits.call_time`, and end when their
    client leaves; a stream that has begun may take any time."""
    app = DocumentedApp(
        title=service.target.name, version=__version__, docs_url=None, redoc_url=None
    )
    app.models = service.target.models
    install_error_handlers(app)
    limits = config.server.limits
    trimmer = BodyTrimmer()
    bodies = BodyReader(limits.bodies_bytes, config.server.connections.body_time, trimmer.add)
    routes = FunctionRoutes(service, bodies, limits)
    app.include_router(routes.router())
    app.include_router(state_routes(service))
    app.add_middleware(DirectCalls, routes=routes)
    app.add_middleware(CallTimeLimit, exempt=frozenset(), time=limits.call_time)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BrowserGuard, config=config)
    app.add_middleware(RequestId)
    if origins := config.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
    return app
