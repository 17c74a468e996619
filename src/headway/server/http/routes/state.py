"""The GET routes: health, metrics, models, lanes and the configuration in force."""

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.core.cost.step_cost import WHOLE
from headway.core.load import LaneLoad
from headway.core.request import NEVER
from headway.server.engine.handle import EngineState
from headway.server.http.errors import error_response
from headway.server.http.openapi import responses
from headway.server.intake.model_and_lane import model_of
from headway.server.intake.service import Service
from headway.server.observe.metrics.metrics import Metrics
from headway.server.protocol.problem import Problem


def probe_routes(service: Service, exporter: Metrics) -> APIRouter:
    """Routes for orchestrators and Prometheus; they need no key."""
    router = APIRouter(tags=["state"])

    @router.get("/health", responses=responses(503))
    async def health() -> JSONResponse:
        """Whether the process is worth keeping: 503 once its engine is down for good."""
        state = service.engine.state
        if state is EngineState.DOWN:
            return error_response(Problem(503, service.engine.down, code="engine_down"))
        return JSONResponse({"status": "ok", "engine": state.value})

    @router.get("/ready", responses=responses(503))
    async def ready() -> JSONResponse:
        """Whether to send requests here: 503 also while loading or draining."""
        _ = service.tokenizer  # raises Problem
        return JSONResponse({"status": "ok", "engine": service.engine.state.value})

    @router.get("/metrics", responses=responses(401, 403, kind="text/plain"))
    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus. Needs a key only where `metrics.key` names one."""
        needed = service.config.metrics.key
        if needed and service.authenticate(request.headers).tenant.key != needed:
            raise Problem(403, "this key may not read /metrics", code="metrics_not_allowed")
        return Response(await exporter.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def state_routes(service: Service) -> APIRouter:
    """Routes about the model and its lanes."""
    router = APIRouter(tags=["state"])

    @router.get("/v1/models", responses=responses(401))
    async def models(request: Request) -> JSONResponse:
        """The model under all its names, and as name@lane for each lane that the key may use."""
        lanes = service.authenticate(request.headers).tenant.lanes
        names = [
            f"{name}@{lane}" for name in service.names for lane in service.lanes if lane in lanes
        ]
        data = [_model(service, name) for name in (*service.names, *names)]
        return JSONResponse({"object": "list", "data": data})

    @router.get("/v1/models/{id:path}", responses=responses(401, 404))
    async def model(request: Request, id: str) -> JSONResponse:
        """One entry of /v1/models."""
        service.authenticate(request.headers)
        model_of(id, service.names, service.lanes)
        return JSONResponse(_model(service, id))

    @router.get("/v1/lanes", responses=responses(401))
    async def lanes(request: Request) -> JSONResponse:
        """Each lane's line and budget, and the KV memory that the lanes share."""
        may = service.authenticate(request.headers).tenant.lanes
        load = service.engine.load
        preparing = service.admission.preparing
        data = [
            _lane(name, lane, preparing[name], load.now)
            for name, lane in load.lanes.items()
            if name in may
        ]
        shared = {"running": load.running, "free_blocks": load.free_blocks}
        blocks: dict[str, Any] = {"blocks": load.num_blocks, "capacity": load.capacity}
        if load.drift:  # of step times from the cost file, if there is one
            blocks["drift"] = load.drift / WHOLE
        return JSONResponse({"object": "list", "data": data, **shared, **blocks})

    @router.get("/v1/config/effective", responses=responses(401))
    async def effective(request: Request) -> JSONResponse:
        """The configuration in force for this caller; with the first digits of its key's hash."""
        return JSONResponse(service.config.visible_to(service.authenticate(request.headers).tenant))

    return router


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "headway",
        "root": service.names[0],
        "max_model_len": service.engine.load.capacity,
    }


def _lane(name: str, load: LaneLoad, preparing: int, now: int) -> dict[str, Any]:
    lane, budget = load.lane, load.lane.budget
    limits = {"ttft": budget.ttft, "tpot": budget.tpot, "e2e": budget.e2e, "queue": budget.queue}
    return {
        "id": name,
        "object": "lane",
        "preparing": preparing,  # requests being tokenized; they have their places in the line
        "waiting": load.waiting,
        "waiting_tokens": load.tokens,
        "relegated": load.relegated,  # of those that wait
        "drain_tokens_per_second": round(load.drain, 3),  # 0: not measured yet
        "eta": _eta(load, now),
        "max_waiting": _bound(lane.max_waiting),
        "max_waiting_tokens": _bound(lane.max_waiting_tokens),
        "priority": lane.priority,
        "slots": _bound(load.slots),  # that may run at once, at present
        # How long its oldest may be held, at present; null: nobody is held.
        "window_ms": None if load.window == NEVER else load.window / 1e6,
        "budget_ms": {
            name: None if limit == NEVER else limit / 1e6 for name, limit in limits.items()
        },
    }


def _eta(load: LaneLoad, now: int) -> dict[str, float] | None:
    """Of the first token of a request that came now; null: not known."""
    if load.eta == NEVER:
        return None
    return {
        "first_token_ms": round(load.eta / 1e6, 1),
        "prompt_tokens": load.eta_prompt,
        "age_ms": round((now - load.eta_at) / 1e6, 1),  # until the latest step
    }


def _bound(limit: int) -> int | None:
    return None if limit == NEVER else limit
