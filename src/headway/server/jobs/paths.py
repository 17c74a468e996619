"""JobServer: the jobs' service and its HTTP paths."""

from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from headway.server.http.application import DocumentedApp
from headway.server.http.body import BodyReader
from headway.server.http.errors import error_response
from headway.server.http.openapi import REF
from headway.server.jobs.routes.batches import BatchBody, batch_routes
from headway.server.jobs.routes.calls import LaterCalls, call_routes, store_problem
from headway.server.jobs.routes.files import file_routes
from headway.server.jobs.service import JobService
from headway.store.database import StoreError


class JobServer(JobService):
    """The jobs of a server."""

    def install(self, app: DocumentedApp, bodies: BodyReader) -> None:
        """Add the paths, the middleware and the metrics. Call it before the middleware that every
        application has is added."""
        for router in (file_routes(self), batch_routes(self, bodies), call_routes(self)):
            app.include_router(router)
        app.add_middleware(LaterCalls, jobs=self, bodies=bodies)
        app.add_exception_handler(StoreError, _store_down)
        app.state.registry.register(self.metrics)
        others = app.models

        def models() -> dict[str, Any]:
            _, mine = models_json_schema([(BatchBody, "validation")], ref_template=REF)
            return {**others(), **mine["$defs"]}

        app.models = models


async def _store_down(request: Request, error: Exception) -> Response:
    assert isinstance(error, StoreError)
    return error_response(store_problem(error))
