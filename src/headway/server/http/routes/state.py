"""The GET routes: health, metrics, models, lanes and the configuration in force."""

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.server.engine.handle import Backend, EngineState
from headway.server.http.errors import error_response
from headway.server.http.openapi import responses
from headway.server.http.routes.lanes import lane_states
from headway.server.intake.admission import loading, not_open
from headway.server.intake.model import Model
from headway.server.intake.routing.routes import ServedRoute
from headway.server.intake.service import Service
from headway.server.observe.metrics.metrics import Metrics
from headway.server.protocol.problem import Problem


def probe_routes(service: Service, exporter: Metrics) -> APIRouter:
    """Routes for orchestrators and Prometheus; they need no key."""
    router, backends = APIRouter(tags=["state"]), service.models.backends

    @router.get("/health", responses=responses(503))
    async def health() -> JSONResponse:
        """Whether the process is worth keeping: 503 once all that it serves is down for good."""
        states = [each.state for each in backends.values()]
        if all(state is EngineState.DOWN for state in states):
            why = "; ".join(each.down for each in backends.values())
            return error_response(Problem(503, why, code="engine_down"))
        some_are_down = EngineState.DOWN in states
        return JSONResponse({"status": "degraded" if some_are_down else "ok", **_states(service)})

    @router.get("/ready", responses=responses(503))
    async def ready() -> JSONResponse:
        """Whether to send requests here: 503 while draining, until all that it serves has been
        loaded, and when nothing of it takes requests."""
        service.check_closing()
        for each in service.models:
            if service.models.is_one or not each.was_ready:
                _ = each.tokenizer  # raises Problem
        if not all(each.was_ready for each in service.models.functions.values()):
            raise loading()
        if not any(each.state is EngineState.READY for each in backends.values()):
            raise _closed(backends)
        return JSONResponse({"status": "ok", **_states(service)})

    @router.get("/metrics", responses=responses(401, 403, kind="text/plain"))
    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus. Needs a key only where `metrics.key` names one."""
        needed = service.config.metrics.key
        if needed and service.authenticate(request.headers).tenant.key != needed:
            raise Problem(403, "this key may not read /metrics", code="metrics_not_allowed")
        return Response(await exporter.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def state_routes(service: Service) -> APIRouter:
    """Routes about the models and their lanes."""
    router, models = APIRouter(tags=["state"]), service.models

    @router.get("/v1/models", responses=responses(401))
    async def listed(request: Request) -> JSONResponse:
        """The models under all their names, and as name@lane for each lane that the key may use."""
        tenant = service.authenticate(request.headers).tenant
        lanes = [lane for lane in service.lanes if lane in tenant.lanes]
        data = []
        for each in models.usable(tenant):
            names = [f"{name}@{lane}" for name in each.names for lane in lanes]
            data += [
                _model(service, each.models[0], name, each.name) for name in (*each.names, *names)
            ]
        for route in models.usable_routes(tenant):
            names = [route.name, *[f"{route.name}@{lane}" for lane in lanes]]
            data += [_route(service, route, name) for name in names]
        return JSONResponse({"object": "list", "data": data})

    @router.get("/v1/models/{id:path}", responses=responses(401, 404))
    async def model(request: Request, id: str) -> JSONResponse:
        """One entry of /v1/models."""
        if not id:  # the path of the list, with a slash at its end
            return await listed(request)
        found = models.find(id, service.lanes, service.authenticate(request.headers))
        if found.route:
            return JSONResponse(_route(service, found.route, id))
        return JSONResponse(_model(service, found.model, id, found.entry))

    @router.get("/v1/lanes", responses=responses(401))
    async def lanes(request: Request) -> JSONResponse:
        """Each lane's line and budget, and the KV memory that the lanes share: of each model."""
        tenant = service.authenticate(request.headers).tenant
        if models.is_one:
            return JSONResponse({"object": "list", **lane_states(models.first, tenant)})
        mine = [one for entry in models.usable(tenant) for one in entry.models]
        each = [{"model": one.name, **lane_states(one, tenant)} for one in mine]
        data = [{**lane, "model": state["model"]} for state in each for lane in state.pop("data")]
        return JSONResponse({"object": "list", "data": data, "models": each})

    @router.get("/v1/config/effective", responses=responses(401))
    async def effective(request: Request) -> JSONResponse:
        """The configuration in force for this caller; with the first digits of its key's hash."""
        return JSONResponse(service.config.visible_to(service.authenticate(request.headers).tenant))

    return router


def _states(service: Service) -> dict[str, Any]:
    """The engine's state or, with several backends, each backend's state."""
    if service.models.is_one:
        return {"engine": service.model.engine.state.value}
    return {"models": {name: each.state.value for name, each in service.models.backends.items()}}


def _closed(backends: dict[str, Backend]) -> Problem:
    """The answer when no backend takes requests. A loading backend's answer goes before others."""
    loading = [each for each in backends.values() if each.state is EngineState.LOADING]
    return not_open(next(iter([*loading, *backends.values()])))


def _route(service: Service, route: ServedRoute, name: str) -> dict[str, Any]:
    """A route's entry, in the form of a model's, with the largest model's max_model_len."""
    about = _model(service, route.models[0], name, route.name)
    return about | {"max_model_len": route.capacity}


def _model(service: Service, model: Model, name: str, root: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "headway",
        "root": root,
        "max_model_len": model.engine.load.capacity,
    }
