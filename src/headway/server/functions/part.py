"""FunctionsPart: the functions of a server that also has models, with their paths and metrics."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace

from fastapi import APIRouter
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import JSONResponse

from headway.core.request import NEVER
from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.config.tenant import Tenant
from headway.server.dashboard.view import ModelView
from headway.server.engine.handle import EngineState
from headway.server.functions.codecs import KINDS
from headway.server.functions.direct.direct_calls import DirectCalls
from headway.server.functions.direct.shortcut import Shortcut
from headway.server.functions.ledger.admission import Admission
from headway.server.functions.ledger.item_rows import FunctionCall
from headway.server.functions.messages import About, Ask, Seen, Wishes
from headway.server.functions.remote import RemoteFunction
from headway.server.functions.routes import (
    AT,
    Answering,
    FunctionRoutes,
    budget,
    listed,
)
from headway.server.http.application import DocumentedApp
from headway.server.http.body import BodyReader
from headway.server.http.openapi import responses
from headway.server.intake.access_record import access_record
from headway.server.intake.model_and_lane import lane_of
from headway.server.intake.service import Service
from headway.server.jobs.host import JobHost
from headway.server.observe.metrics.metrics import merged
from headway.server.protocol.deadlines import deadlines_of, result_time
from headway.server.protocol.expected import expected_tokens
from headway.server.protocol.problem import Problem


class Front:
    """A function behind the server's keys and lanes (functions.routes.FunctionFront)."""

    def __init__(self, function: RemoteFunction, service: Service) -> None:
        self._function, self._service = function, service
        self.open = 0

    @property
    def about(self) -> About:
        return self._function.about

    def admit(self, headers: Mapping[str, str]) -> Admission:
        function, keys = self._function, self._service.keys
        access_record().model = function.name
        tenant = keys.caller(headers)
        if not tenant.may_use(function.name):
            raise Problem(404, f"there is no function {function.name!r}", code="model_not_found")
        return Admission(keys, tenant, headers, function.book, function.check_open)

    def wishes(self, headers: Mapping[str, str], tenant: Tenant) -> Wishes:
        budgets = self._function.budgets
        lane = lane_of(headers.get("x-headway-lane", ""), "", "", tenant, budgets)
        access_record().lane = lane
        expected_tokens(headers)  # unused by items, but a wrong value is refused as elsewhere
        held = deadlines_of(budgets[lane], headers, clock.now()).budget
        limit = min(held.e2e, result_time(headers, self.about.streams))
        return Wishes(lane, 0.0 if limit == NEVER else limit / SECOND)

    async def answer(self, ask: Ask, call: FunctionCall | None) -> bytes:
        return await self._function.answer(ask, call)

    def events(self, ask: Ask, call: FunctionCall | None) -> AsyncGenerator[bytes]:
        return self._function.events(ask, call)


class FunctionsPart:
    """The functions' paths and metrics: installed before the functions are loaded, documented once
    they are."""

    def __init__(self, service: Service, functions: Mapping[str, RemoteFunction]) -> None:
        self._service, self._functions = service, functions
        self._fronts = {name: Front(each, service) for name, each in functions.items()}
        self._routes: dict[str, FunctionRoutes] = {}
        self._seen: dict[str, Seen] = {}  # of each function, the latest

    @property
    def open(self) -> int:
        """Requests of functions that are being answered."""
        return sum(front.open for front in self._fronts.values())

    def install(self, app: DocumentedApp, bodies: BodyReader) -> None:
        limits, paths = self._service.config.server.limits, dict[str, Answering]()
        for name, front in self._fronts.items():
            routes = self._routes[name] = FunctionRoutes(front, name, bodies, limits)
            paths[routes.path] = routes.one
            paths[f"{routes.path}/batch"] = routes.several
        app.add_middleware(DirectCalls, paths=paths)
        fronts = {routes.path: self._fronts[name] for name, routes in self._routes.items()}
        app.shortcut = Shortcut(fronts, bodies, self._service.config)
        app.include_router(self._state_routes())
        app.state.registry.register(self)
        app.state.metrics.refreshing.append(self._refresh)

    def document(self, app: DocumentedApp) -> None:
        """Add the functions' types to /openapi.json, once all functions are known."""
        for routes in self._routes.values():
            app.include_router(routes.router())
        models, others = dict[str, object](), app.models
        for function in self._functions.values():
            models |= function.about.models
        app.models = lambda: {**others(), **models}
        app.openapi_schema = None

    def with_jobs(self, host: JobHost) -> JobHost:
        """The host with the functions' paths."""
        functions = {f"{AT}/{name}": each for name, each in self._functions.items()}
        endpoints = {**host.endpoints, **dict.fromkeys(functions, KINDS)}

        def streams(path: str) -> bool:  # looked up when asked: unknown until it is loaded
            return path in functions and functions[path].about.streams

        return replace(host, endpoints=endpoints, streams=streams)

    async def views(self, tenant: Tenant, now: int) -> list[ModelView]:
        """What the live page shows of the functions that the tenant may use."""
        usable = [each for each in self._functions.values() if tenant.may_use(each.name)]
        seen = await asyncio.gather(*[each.show(now) for each in usable])
        return [
            replace(each, lanes=tuple([lane for lane in each.lanes if lane.name in tenant.lanes]))
            for each in seen
        ]

    def collect(self) -> Iterator[Metric]:
        """The metric families of all functions."""
        state = GaugeMetricFamily(
            "headway_function_state",
            "1 for the function's present state, 0 for the others.",
            labels=["function", "state"],
        )
        for name, function in self._functions.items():
            for each in EngineState:
                state.add_metric([name, each.value], int(each is function.state))
        yield state
        yield from merged([self._told(name) for name in self._seen])

    def _told(self, name: str) -> list[Metric]:
        """What the function reported last. What waited in its process is left out once the process
        is gone."""
        families, state = self._seen[name].families, self._functions[name].state
        return [each for each in families if each.type != "gauge" or state is EngineState.READY]

    async def _refresh(self) -> None:
        looked = [self._look(each) for each in self._functions.values()]
        await asyncio.gather(*looked)

    async def _look(self, function: RemoteFunction) -> Seen | None:
        if seen := await function.look():
            self._seen[function.name] = seen
        return seen

    def _state_routes(self) -> APIRouter:
        router = APIRouter(tags=["state"])

        @router.get(AT, responses=responses(401))
        async def functions(request: Request) -> JSONResponse:
            """The functions, their lanes, and what waits in them."""
            tenant = self._service.keys.caller(request.headers)
            usable = [each for each in self._functions.values() if tenant.may_use(each.name)]
            seen = await asyncio.gather(*[self._look(each) for each in usable])
            data = [self._listed(*each) for each in zip(usable, seen, strict=True)]
            return JSONResponse({"object": "list", "data": data})

        return router

    def _listed(self, function: RemoteFunction, seen: Seen | None) -> dict[str, object]:
        waiting = seen.waiting if seen else {}
        lanes = {
            name: {"waiting": waiting.get(name, 0), "budget": budget(lane.budget.e2e)}
            for name, lane in function.lanes.items()
        }
        return {**listed(function.about, lanes), "state": function.state.value}
