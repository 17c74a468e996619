"""The routes that generate text, /v1/chat/completions and /v1/completions, and cancelling."""

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.server.config.sections.limits import LimitSettings
from headway.server.http.body import BodyReader
from headway.server.http.disconnect import Client
from headway.server.http.json_answer import json_answer
from headway.server.http.openapi import generation, responses
from headway.server.http.sse import stream_answer, stream_route
from headway.server.intake.service import Service
from headway.server.protocol.fields import ChatBody, CompletionBody, GenerationBody
from headway.server.protocol.problem import Problem
from headway.server.protocol.reading import read
from headway.server.protocol.request import ApiRequest, chat_request, completion_request
from headway.server.protocol.vectors.fields import VectorBody
from headway.server.protocol.vectors.request import VectorModel

ANSWERS = frozenset({"/v1/chat/completions", "/v1/completions"})

Body = TypeVar("Body", bound=GenerationBody | VectorBody)


def answer_routes(service: Service, bodies: BodyReader) -> APIRouter:
    """The routes that generate text, and the one that cancels a request."""
    router = APIRouter(tags=["answers"])

    @router.post("/v1/chat/completions", **generation(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """The assistant's next turn."""
        return await answer(service, bodies, request, ChatBody, "chat", _of_any(chat_request))

    @router.post("/v1/completions", **generation(CompletionBody))
    async def completions(request: Request) -> Response:
        """A completion of each prompt."""
        made, kind = _of_any(completion_request), "text_completion"
        return await answer(service, bodies, request, CompletionBody, kind, made)

    @router.post("/v1/requests/{id:path}/cancel", responses=responses(401, 404))
    async def cancel(request: Request, id: str) -> JSONResponse:
        """End your own calls, by the id of an answer or by the X-Request-Id they were sent with."""
        arrival = service.authenticate(request.headers)
        if not (count := service.cancel(arrival.tenant.name, id)):
            raise Problem(404, f"nothing of yours runs as {id[:200]!r}", "id", "no_such_request")
        return JSONResponse({"id": id, "object": "request.cancelled", "cancelled": count})

    return router


async def answer(
    service: Service,
    bodies: BodyReader,
    request: Request,
    kind: type[Body],
    operation: str,
    api_request: Callable[[Body, LimitSettings, VectorModel], ApiRequest],
) -> Response:
    """Read the body, put the call in its lane and answer it, whole or as a stream. operation: its
    name in traces."""
    arrival = service.authenticate(request.headers)
    permit = service.begin(arrival, operation)
    limits = service.config.server.limits
    client: Client | None = None
    try:
        with service.reporting(arrival, operation):
            async with bodies.read(request, limits.body_bytes) as raw:
                body, size = read(kind, raw), len(raw)
            del raw
        found = service.find(arrival, body.model or "", operation)
        parsed = api_request(body, limits, found.model.vectors)
        del body
        client = Client(request.receive, permit, service.sent)
        asking = service.call(arrival, parsed, found, client, size)
        if found.route and parsed.stream:
            return await stream_route(asking, client, found.name)
        call = await asking
        return await (stream_answer if parsed.stream else json_answer)(call, client)
    except BaseException:
        if client:
            client.close()
        permit.release()
        raise


def _of_any(
    api_request: Callable[[Body, LimitSettings], ApiRequest],
) -> Callable[[Body, LimitSettings, VectorModel], ApiRequest]:
    """The same function with a further argument, the model, which it ignores."""
    return lambda body, limits, model: api_request(body, limits)
