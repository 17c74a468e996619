"""The routes of a function: one item, several, and what is known of it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.config.sections.limits import LimitSettings
from headway.server.functions.codecs import (
    JSON,
    KINDS,
    checked,
    decode,
    encode,
    kind_of,
)
from headway.server.functions.service import FunctionService
from headway.server.http.body import BodyReader
from headway.server.http.errors import error_response
from headway.server.http.openapi import responses
from headway.server.http.sse import HEADERS
from headway.server.protocol.problem import Problem, wrong

AT = "/v1/functions"
STATUSES = 400, 401, 404, 408, 413, 415, 429, 500, 503


class FunctionRoutes:
    """POST /v1/functions/NAME (`one`) and /batch (`several`)."""

    def __init__(self, service: FunctionService, bodies: BodyReader, limits: LimitSettings) -> None:
        self._service, self._bodies, self._limits = service, bodies, limits
        self.path = f"{AT}/{service.target.name}"

    def router(self) -> APIRouter:
        """For the application, with what /openapi.json says."""
        router, service = APIRouter(tags=["functions"]), self._service
        router.post(self.path, name=service.target.name, **_documented(service, several=False))(
            self.one
        )
        if not service.target.streams:
            router.post(f"{self.path}/batch", **_documented(service, several=True))(self.several)
        return router

    async def one(self, request: Request) -> Response:
        """The result of an item, or its pieces as events. Raises Problem."""
        service, target = self._service, self._service.target
        headers = dict(request.headers)  # each look at starlette's goes through all of them
        with _Admitted(service, headers) as admitted:
            value, kind = await self._read(request, headers)
            item = checked(value, target.item, target.arrays)
            if target.streams:
                return await _stream(service, item, headers, admitted)
            result = await service.call(item, headers)
            return Response(_encoded(service, result, kind), media_type=kind)

    async def several(self, request: Request) -> Response:
        """The results in the order of the items. An item that fails has an `error`."""
        service, target, most = self._service, self._service.target, self._limits.inputs
        headers = dict(request.headers)
        with _Admitted(service, headers):
            values, kind = await self._read(request, headers)
            if not isinstance(values, list):
                raise wrong("the body must be a list of items")
            if len(values) > most:
                raise wrong(f"{len(values)} items, where {most} are the most of one call")
            items = [
                checked(each, target.item, target.arrays, str(i)) for i, each in enumerate(values)
            ]
            done = await service.call_each(items, headers)
            results = [
                each.body if isinstance(each, Problem) else {"result": each} for each in done
            ]
            return Response(_encoded(service, {"results": results}, kind), media_type=kind)

    async def _read(self, request: Request, headers: Mapping[str, str]) -> tuple[Any, str]:
        """The body's value and the kind that the answer has. Raises Problem."""
        kind = kind_of(headers.get("content-type", ""), JSON)
        async with self._bodies.read(request, self._limits.body_bytes, KINDS) as raw:
            value = decode(raw, kind)
        return value, kind_of(headers.get("accept", ""), kind)


class DirectCalls:
    """Middleware, the innermost: answers calls of one item before the framework's router, whose
    layers take twice as long as all the rest."""

    def __init__(self, app: ASGIApp, routes: FunctionRoutes) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._routes.path:
            return await self._app(scope, receive, send)
        if scope["method"] != "POST":
            return await self._app(scope, receive, send)
        try:
            response = await self._routes.one(Request(scope, receive))
        except Problem as problem:
            response = error_response(problem)
        await response(scope, receive, send)


def state_routes(service: FunctionService, registry: CollectorRegistry) -> APIRouter:
    """What is known of the function, for people, orchestrators and Prometheus. registry: of its
    metrics."""
    router = APIRouter(tags=["state"])

    @router.get(AT, responses=responses(401))
    async def functions(request: Request) -> JSONResponse:
        """The function, its lanes, and what waits in them."""
        service.keys.caller(request.headers)
        target, lines = service.target, service.batcher.load.lanes
        lanes = {
            name: {"waiting": each.waiting, "budget": _budget(each.lane.budget.e2e)}
            for name, each in lines.items()
        }
        about = {
            "name": target.name,
            "path": f"{AT}/{target.name}",
            "about": target.summary,
            "lanes": lanes,
        }
        return JSONResponse({"object": "list", "data": [about | {"streams": target.streams}]})

    @router.get("/health", responses=responses())
    async def health() -> JSONResponse:
        """Whether the process is worth keeping."""
        return JSONResponse({"status": "ok"})

    @router.get("/ready", responses=responses(503))
    async def ready() -> JSONResponse:
        """Whether to send requests here: 503 while draining."""
        service.check_open()
        return JSONResponse({"status": "ok"})

    @router.get("/metrics", responses=responses(kind="text/plain"))
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


class _Admitted:
    """A request that is being answered: to the end of the block or, if it is `kept`, to `end`."""

    def __init__(self, service: FunctionService, headers: Mapping[str, str]) -> None:
        """Raises Problem."""
        self._service, self._permit, self.kept = service, service.admit(headers), False
        service.open += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self.kept:
            self.end()

    def end(self) -> None:
        """Once."""
        self._service.open -= 1
        self._permit.release()


def _encoded(service: FunctionService, value: Any, kind: str) -> bytes:
    """The body of a result. Raises Problem if the result has no such form."""
    try:
        return encode(value, kind)
    except Exception as error:  # pydantic, msgpack and numpy raise many kinds
        why = f"{service.target.name} returned what is no {kind}: {error}"
        raise Problem(500, why, code="function_error") from error


async def _stream(
    service: FunctionService, item: Any, headers: Mapping[str, str], admitted: _Admitted
) -> Response:
    """Server-sent events. The first piece is waited for, so that a refusal has its own status."""
    pieces = service.pieces(item, headers)
    try:
        first = [await anext(pieces)]
    except StopAsyncIteration:
        first = []
    return _EventStream(_events(service, first, pieces), admitted)


class _EventStream(StreamingResponse):
    """The request ends with its last event, or when its client leaves."""

    def __init__(self, events: AsyncIterator[bytes], admitted: _Admitted) -> None:
        super().__init__(events, headers=HEADERS)
        self._admitted, admitted.kept = admitted, True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._admitted.end()


async def _events(
    service: FunctionService, first: list[Any], pieces: AsyncIterator[Any]
) -> AsyncIterator[bytes]:
    try:
        for piece in first:
            yield b"data: " + _encoded(service, piece, JSON) + b"\n\n"
        async for piece in pieces:
            yield b"data: " + _encoded(service, piece, JSON) + b"\n\n"
    except Problem as problem:
        yield b"data: " + encode(problem.body, JSON) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _budget(e2e: int) -> float | None:
    seconds = e2e / 1e9
    return seconds if seconds < 1e9 else None


def _documented(service: FunctionService, *, several: bool) -> dict[str, Any]:
    """What /openapi.json says: the schemas of items and results are those of the type hints."""
    target = service.target
    item, result = ({k: v for k, v in each.items() if k != "$defs"} for each in target.schemas)
    if several:
        item = {"type": "array", "items": item}
        entry = {"type": "object", "properties": {"result": result, "error": {"type": "object"}}}
        result = {
            "type": "object",
            "properties": {"results": {"type": "array", "items": entry}},
        }
    found = responses(*STATUSES)
    answer = "text/event-stream" if target.streams else JSON
    found[200]["content"] = {answer: {"schema": result}}
    body = {"required": True, "content": {kind: {"schema": item} for kind in sorted(KINDS)}}
    about = target.summary or f"{target.name} of {'several items' if several else 'an item'}."
    return {"responses": found, "description": about, "openapi_extra": {"requestBody": body}}
