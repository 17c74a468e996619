"""The ASGI application of a function."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from headway import __version__
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.dashboard.board import Board, dashboard_routes
from headway.server.dashboard.door import Door
from headway.server.functions.direct.direct_calls import DirectCalls
from headway.server.functions.direct.shortcut import Shortcut
from headway.server.functions.routes import FunctionRoutes, state_routes
from headway.server.functions.service import FunctionService
from headway.server.functions.watched import WatchedFunction
from headway.server.heap import BodyTrimmer
from headway.server.http.application import UPLOADS, DocumentedApp, add_middleware
from headway.server.http.body import BodyReader
from headway.server.http.errors import install_error_handlers
from headway.server.ledger.install import install_kept

if TYPE_CHECKING:
    from headway.server.jobs.paths import JobServer
    from headway.server.ledger.ledger_service import LedgerService


def make_app(
    service: FunctionService,
    config: ServerConfig,
    jobs: "JobServer | None" = None,
    ledger: "LedgerService | None" = None,
) -> FastAPI:
    """The application. A call takes at most `server.limits.call_time`, and ends when its client
    leaves. A stream that has begun may take any time. jobs, ledger: None if they have no store."""
    app = DocumentedApp(
        title=service.target.name, version=__version__, docs_url=None, redoc_url=None
    )
    app.models = service.target.models
    install_error_handlers(app)
    limits = config.server.limits
    trimmer = BodyTrimmer()
    bodies = BodyReader(limits.bodies_bytes, config.server.connections.body_time, trimmer.add)
    routes = FunctionRoutes(service, service.target.name, bodies, limits)
    app.include_router(routes.router())
    registry = app.state.registry = CollectorRegistry()
    registry.register(service.metrics)
    app.include_router(state_routes(service, registry))
    door = Door(service.keys, bodies, clock.now)
    watched = WatchedFunction(service)
    books = ledger.books if ledger else None
    app.include_router(dashboard_routes(Board([watched], books), door))
    app.add_middleware(DirectCalls, paths={routes.path: routes.one})
    app.shortcut = Shortcut({routes.path: service}, bodies, config)
    if ledger:
        install_kept(app, service.keys, bodies, limits.body_bytes, ledger)
    if jobs:
        jobs.install(app, bodies)
    add_middleware(app, config, UPLOADS)
    return app
