"""The routes /tokenize and /detokenize, compatible with vLLM's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from headway.errors import PromptError
from headway.server.answering.arrival import Arrival
from headway.server.http.body import BodyReader
from headway.server.http.openapi import request_of, responses
from headway.server.intake.service import Service
from headway.server.intake.tokenizing import check_count, check_size
from headway.server.protocol.fields import DetokenizeBody, TokenizeBody
from headway.server.protocol.problem import wrong
from headway.server.protocol.reading import read
from headway.server.protocol.request import Prompt, messages_of

Body = TypeVar("Body", TokenizeBody, DetokenizeBody)


def text_routes(service: Service, bodies: BodyReader) -> APIRouter:
    """The routes for tokenizing. Their tokens count towards the key's tokens per minute."""
    router = APIRouter(tags=["text"])
    refusals = responses(400, 401, 404, 413, 415, 429, 503)

    @router.post("/tokenize", responses=refusals, openapi_extra=request_of(TokenizeBody))
    async def tokenize(request: Request) -> JSONResponse:
        """The token ids of a prompt, or of a chat through the model's template."""
        with _permitted(service, request, "tokenize") as arrival:
            body, size = await _body(service, bodies, request, TokenizeBody)
            model = service.find(arrival, body.model or "", "tokenize").model
            if (body.prompt is None) == (body.messages is None):
                raise wrong("give 'prompt' or 'messages'", "prompt")
            prompt: Prompt = body.prompt or ""
            if body.messages is not None:
                prompt = messages_of(body.messages, service.config.server.limits)
            field = "prompt" if body.messages is None else "messages"
            check_size(prompt, model.text_bytes, field)
            try:
                with service.held.holding(size):
                    (ids,) = await model.tokenizer.encode(prompt)
            except PromptError as error:
                raise wrong(str(error), field) from error
            service.charge(arrival, len(ids))
        capacity = model.engine.load.capacity
        return JSONResponse({"count": len(ids), "max_model_len": capacity, "tokens": ids})

    @router.post("/detokenize", responses=refusals, openapi_extra=request_of(DetokenizeBody))
    async def detokenize(request: Request) -> JSONResponse:
        """The text of token ids; special tokens are spelled out."""
        with _permitted(service, request, "detokenize") as arrival:
            body, size = await _body(service, bodies, request, DetokenizeBody)
            model = service.find(arrival, body.model or "", "detokenize").model
            check_count(body.tokens, model.text_bytes, "tokens")
            try:
                with service.held.holding(size):
                    # encode checks that the model has these ids.
                    (ids,) = await model.tokenizer.encode(tuple(body.tokens))
                    (text,) = await model.tokenizer.decode(ids, skip_special=False)
            except PromptError as error:
                raise wrong(str(error), "tokens") from error
            service.charge(arrival, len(ids))
        return JSONResponse({"prompt": text})

    return router


async def _body(
    service: Service, bodies: BodyReader, request: Request, kind: type[Body]
) -> tuple[Body, int]:
    """The parsed body, and its size in bytes. Raises Problem."""
    async with bodies.read(request, service.config.server.limits.body_bytes) as raw:
        return read(kind, raw), len(raw)


@contextmanager
def _permitted(service: Service, request: Request, operation: str) -> Iterator[Arrival]:
    """The request's arrival. Within the block the request holds one of its key's permits."""
    arrival = service.authenticate(request.headers)
    permit = service.begin(arrival, operation)
    try:
        yield arrival
    finally:
        permit.release()
