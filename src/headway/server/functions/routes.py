"""The routes of a function: for one item, for several, and for its state."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, Self

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from headway.server.answering.call import SLOW
from headway.server.answering.outgoing import Outgoing
from headway.server.config.sections.limits import LimitSettings
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import EngineState
from headway.server.functions.codecs import JSON, KINDS, NPY, kind_of
from headway.server.functions.ledger.admission import Admission
from headway.server.functions.ledger.item_rows import FunctionCall
from headway.server.functions.messages import About, Ask, Wishes
from headway.server.functions.service import FunctionService
from headway.server.http.body import BodyReader
from headway.server.http.disconnect import client_gone, until_disconnect
from headway.server.http.errors import note
from headway.server.http.exchange import EXCHANGE
from headway.server.http.openapi import responses
from headway.server.http.sse import HEADERS, KEEPALIVE
from headway.server.intake.access_record import access_record
from headway.server.protocol.chunks import DONE, WAITING, failed
from headway.server.protocol.problem import Problem

AT = "/v1/functions"
# Bytes of a stream that its client may leave unread; then the stream ends. This is more than of a
# model's, because pieces may be large and come faster than a network takes them.
MOST_UNREAD = 32 << 20
STATUSES = 400, 401, 404, 408, 413, 415, 429, 500, 503
Answering = Callable[[Request], Awaitable[Response]]


class FunctionFront(Protocol):
    """A function, behind the check of who may call it."""

    open: int  # requests that are being answered

    @property
    def about(self) -> About: ...

    def admit(self, headers: Mapping[str, str]) -> Admission:
        """Let a request with these headers in. Raises Problem."""
        ...

    def wishes(self, headers: Mapping[str, str], tenant: Tenant) -> Wishes:
        """The lane and the deadline of items with these headers. Raises Problem."""
        ...

    async def answer(self, ask: Ask, call: FunctionCall | None) -> bytes:
        """The body of the answer. call: None if no ledger is kept. Raises Problem."""
        ...

    def events(self, ask: Ask, call: FunctionCall | None) -> AsyncGenerator[bytes]:
        """The events of a stream, all but [DONE]. call: as in `answer`. Raises Problem, also after
        some of them."""
        ...


class FunctionRoutes:
    """POST /v1/functions/NAME (`one`) and /batch (`several`)."""

    def __init__(
        self, front: FunctionFront, name: str, bodies: BodyReader, limits: LimitSettings
    ) -> None:
        self._front, self._bodies, self._limits = front, bodies, limits
        self.path = f"{AT}/{name}"

    def router(self) -> APIRouter:
        """The router for the application, with the function's part of /openapi.json."""
        router, about = APIRouter(tags=["functions"]), self._front.about
        router.post(self.path, name=about.name, **_documented(about, several=False))(self.one)
        if not about.streams:
            router.post(f"{self.path}/batch", **_documented(about, several=True))(self.several)
        return router

    async def one(self, request: Request) -> Response:
        """The result of an item, or its pieces as events. Raises Problem."""
        front, headers = self._front, dict(request.headers)  # each look at starlette's is slow
        with Admitted(front, headers) as admitted:
            ask = await self._read(request, headers, admitted.tenant)
            if front.about.streams:
                return await _stream(front.events(ask, admitted.call), admitted)
            return Response(await front.answer(ask, admitted.call), media_type=ask.accept)

    async def several(self, request: Request) -> Response:
        """The results in the order of the items. An item that fails has an `error`."""
        front, headers = self._front, dict(request.headers)
        with Admitted(front, headers) as admitted:
            if front.about.streams:
                why = f"there is no {self.path}/batch: a generator takes one item at a time"
                raise Problem(404, why, code="unknown_url")
            ask = await self._read(request, headers, admitted.tenant)
            ask = ask._replace(most=self._limits.inputs)
            body = await front.answer(ask, admitted.call)
            return Response(body, media_type=ask.accept)

    async def _read(self, request: Request, headers: Mapping[str, str], tenant: Tenant) -> Ask:
        """Read the body, and choose the answer's kind. Raises Problem."""
        kind = kind_of(headers.get("content-type", ""), JSON)
        async with self._bodies.read(request, self._limits.body_bytes, KINDS) as raw:
            body = bytes(raw)
        wishes = self._front.wishes(headers, tenant)
        return Ask(body, kind, kind_of(headers.get("accept", ""), kind), wishes)


def state_routes(service: FunctionService, registry: CollectorRegistry) -> APIRouter:
    """The router of the function's state, for people, orchestrators and Prometheus. registry: of
    its metrics."""
    router = APIRouter(tags=["state"])

    @router.get(AT, responses=responses(401))
    async def functions(request: Request) -> JSONResponse:
        """The function, its lanes, and what waits in them."""
        service.keys.caller(request.headers)
        lines = service.batcher.load.lanes
        lanes = {
            name: {"waiting": each.waiting, "budget": budget(each.lane.budget.e2e)}
            for name, each in lines.items()
        }
        return JSONResponse({"object": "list", "data": [listed(service.about, lanes)]})

    @router.get("/health", responses=responses(503))
    async def health() -> JSONResponse:
        """Whether the process is worth keeping: 503 once the batcher's engine is down."""
        if service.state is EngineState.DOWN:
            raise Problem(503, service.batcher.down, code="engine_down")
        return JSONResponse({"status": "ok"})

    @router.get("/ready", responses=responses(503))
    async def ready() -> JSONResponse:
        """Whether to send requests here: 503 while draining or down."""
        service.check_open()
        return JSONResponse({"status": "ok"})

    @router.get("/metrics", responses=responses(kind="text/plain"))
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


def listed(about: About, lanes: Mapping[str, Any]) -> dict[str, Any]:
    """A function as /v1/functions lists it."""
    path = f"{AT}/{about.name}"
    found = {"name": about.name, "path": path, "about": about.summary, "lanes": lanes}
    return {**found, "streams": about.streams}


def budget(e2e: int) -> float | None:
    """A lane's budget in seconds; None: there is none. e2e: nanoseconds."""
    seconds = e2e / 1e9
    return seconds if seconds < 1e9 else None


class Admitted:
    """A request that is being answered, until the block ends or, if it is `kept`, until `end`."""

    def __init__(self, front: FunctionFront, headers: Mapping[str, str]) -> None:
        """Admit the request. Raises Problem."""
        self._front, self._admission, self.kept = front, front.admit(headers), False
        front.open += 1

    @property
    def tenant(self) -> Tenant:
        return self._admission.tenant

    @property
    def call(self) -> FunctionCall | None:
        """None if no ledger is kept."""
        return self._admission.call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self.kept:
            self.end()

    def end(self) -> None:
        """Note that the request is answered. Call it once."""
        self._front.open -= 1
        self._admission.end()


async def _stream(events: AsyncGenerator[bytes], admitted: Admitted) -> Response:
    """The response of a stream. It waits for the first event, or for KEEPALIVE seconds, so that a
    refusal has its status. Raises Problem."""
    first = asyncio.ensure_future(anext(events, b""))
    try:
        await asyncio.wait([first], timeout=KEEPALIVE)
    except asyncio.CancelledError:
        first.cancel()
        await asyncio.wait([first])  # its item leaves the accounts before the request does
        raise
    if first.done():
        first.result()
    return _EventStream(first, events, admitted)


class _EventStream(Response):
    """Streams a function's events. Each send waits for the client; meanwhile events are collected.

    Once too many are collected, the item is cancelled and the connection is cut. The request ends
    with the last event, or when the client leaves.
    """

    def __init__(
        self, first: asyncio.Future[bytes], events: AsyncGenerator[bytes], admitted: Admitted
    ) -> None:
        super().__init__(b"", 200, HEADERS)
        del self.headers["content-length"]
        self._first, self._events = first, events
        self._admitted, admitted.kept = admitted, True
        self._out, self._is_whole, self._is_slow = Outgoing(MOST_UNREAD), False, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        collecting = asyncio.create_task(self._collect())
        sending = asyncio.create_task(self._send(send, collecting))
        leaving = asyncio.create_task(until_disconnect(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not (sending.done() or self._is_whole):
                note(client_gone())
            if self._is_slow and (exchange := scope.get("extensions", {}).get(EXCHANGE)):
                exchange.cut()
        finally:
            for task in (collecting, sending, leaving):
                task.cancel()
            await asyncio.wait([collecting, sending])
            self._admitted.end()
        if not sending.cancelled():
            sending.result()  # raises the error that ended it

    async def _collect(self) -> None:
        out = self._out
        try:
            async with aclosing(self._events) as events:
                out.put(await self._first)
                out.flush(done=False)
                async for event in events:
                    out.put(event)
                    if out.held > MOST_UNREAD:
                        await asyncio.sleep(0)  # let the client's task take them, if it can
                    if out.flush(done=False):
                        assert out.writer
                        self._is_slow, access_record().code = True, SLOW
                        out.writer.cancel()
                        return
            out.put(DONE)
        except Problem as problem:  # it came after the response had begun
            note(problem)
            out.put(failed(problem) + DONE)
        finally:
            self._is_whole = True
            out.flush(done=True)

    async def _send(self, send: Send, collecting: asyncio.Task[None]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        data, more = b"" if self._first.done() else WAITING, True
        while more:
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            try:
                async with asyncio.timeout(KEEPALIVE):
                    await self._out.wait(self._is_whole)
            except TimeoutError:
                data = WAITING
                continue
            data, more = self._out.take(), not self._is_whole
        await collecting  # raises the error that ended it
        await send({"type": "http.response.body", "body": data, "more_body": False})


def _documented(about: About, *, several: bool) -> dict[str, Any]:
    """What /openapi.json says of a route. The type hints give the schemas of items and results."""
    item, result = dict(about.item), dict(about.result)
    if several:
        item = {"type": "array", "items": item}
        entry = {"type": "object", "properties": {"result": result, "error": {"type": "object"}}}
        result = {
            "type": "object",
            "properties": {"results": {"type": "array", "items": entry}},
        }
    found = responses(*STATUSES)
    answer = "text/event-stream" if about.streams else JSON
    found[200]["content"] = {answer: {"schema": result}}
    kinds = sorted(KINDS - {NPY} if several else KINDS)
    body = {"required": True, "content": {kind: {"schema": item} for kind in kinds}}
    what = about.summary or f"{about.name} of {'several items' if several else 'an item'}."
    return {"responses": found, "description": what, "openapi_extra": {"requestBody": body}}
