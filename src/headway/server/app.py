"""The ASGI application: routes, error handlers, middleware, and the request id.

All middleware is plain ASGI: BaseHTTPMiddleware would hide that a client has disconnected.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headway import __version__
from headway.server.config.tenant import Tenant
from headway.server.dashboard.board import no_versions, no_views
from headway.server.dashboard.install import install_dashboard
from headway.server.dashboard.view import ModelView
from headway.server.http.application import UPLOADS, DocumentedApp, add_middleware
from headway.server.http.body import JSON, BodyReader
from headway.server.http.errors import install_error_handlers
from headway.server.http.openapi import models_of_bodies
from headway.server.http.routes.answers import ANSWERS, answer_routes
from headway.server.http.routes.routed import routing_routes
from headway.server.http.routes.state import probe_routes, state_routes
from headway.server.http.routes.text import text_routes
from headway.server.http.routes.vectors import VECTORS, vector_routes
from headway.server.intake.service import Service
from headway.server.jobs.host import JobHost
from headway.server.ledger.install import install_ledger
from headway.server.observe.metrics.metrics import attach_metrics
from headway.server.versions.opening import install_versions, version_teller

if TYPE_CHECKING:
    from headway.server.jobs.paths import JobServer
    from headway.server.ledger.ledger_service import LedgerService
    from headway.server.versions.keepers import VersionKeepers

FOR_JOBS = sorted(each for each in ANSWERS | VECTORS if each.startswith("/v1/"))


def job_host(service: Service) -> JobHost:
    """What jobs need to know about a service."""
    endpoints = dict.fromkeys(FOR_JOBS, frozenset({JSON}))
    lane = service.config.jobs_lane
    most = service.lanes[lane].max_waiting
    return JobHost(service.keys, endpoints, lane, most, objects=frozenset(FOR_JOBS))


class Part(Protocol):
    """A part of the server beside the models."""

    async def views(self, tenant: Tenant, now: int) -> Sequence[ModelView]:
        """What the live page shows about this part."""
        ...

    def install(self, app: DocumentedApp, bodies: BodyReader) -> None:
        """Add the part's paths and metrics."""
        ...


def make_app(
    service: Service,
    jobs: "JobServer | None" = None,
    functions: Part | None = None,
    ledger: "LedgerService | None" = None,
    versions: "VersionKeepers | None" = None,
) -> DocumentedApp:
    """The application of a service. jobs, ledger, versions: None if they have no store. functions:
    None if there are none.

    While the models load, requests are answered with 503, but /health with 200.
    """
    app = DocumentedApp(
        title="headway",
        version=__version__,
        summary="An OpenAI-compatible server with a latency budget per endpoint.",
        docs_url=None,  # these pages would load scripts from other hosts
        redoc_url=None,
    )
    app.models = models_of_bodies
    install_error_handlers(app)
    limits = service.config.server.limits
    body_time = service.config.server.connections.body_time
    bodies = BodyReader(limits.bodies_bytes, body_time, service.held.trimmer.add)
    metrics = attach_metrics(service)
    app.state.bodies, app.state.metrics, app.state.registry = bodies, metrics, metrics.registry
    for router in (
        answer_routes(service, bodies),
        vector_routes(service, bodies),
        text_routes(service, bodies),
        state_routes(service),
        routing_routes(service),
        probe_routes(service, metrics),
    ):
        app.include_router(router)
    if functions:
        functions.install(app, bodies)
    books = install_ledger(app, service, bodies, ledger)
    told = version_teller(versions) if versions else no_versions
    beside = functions.views if functions else no_views
    install_dashboard(app, service, books, bodies, told, beside)
    if jobs:
        jobs.install(app, bodies)
    if versions:
        install_versions(app, versions, bodies)
    add_middleware(app, service.config, ANSWERS | VECTORS | UPLOADS)
    return app
