"""The routes /tokenize and /detokenize, as vLLM has them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from headway.errors import PromptError
from headway.server.http.body import BodyReader
from headway.server.http.openapi import request_of, responses
from headway.server.intake.model_and_lane import model_of
from headway.server.intake.service import Asker, Front
from headway.server.intake.tokenizing import check_count, check_size
from headway.server.protocol.fields import DetokenizeBody, TokenizeBody
from headway.server.protocol.problem import wrong
from headway.server.protocol.reading import read
from headway.server.protocol.request import Prompt, messages_of

Body = TypeVar("Body", TokenizeBody, DetokenizeBody)


def text_routes(front: Front, bodies: BodyReader) -> APIRouter:
    """Both routes. What is tokenized counts towards the key's tokens per minute."""
    router = APIRouter(tags=["text"])
    refusals = responses(400, 401, 404, 413, 415, 429, 503)

    @router.post("/tokenize", responses=refusals, openapi_extra=request_of(TokenizeBody))
    async def tokenize(request: Request) -> JSONResponse:
        """The token ids of a prompt, or of a chat through the model's template."""
        with _turn(front, request, "tokenize") as asker:
            body, size = await _body(front, bodies, request, TokenizeBody)
            if (body.prompt is None) == (body.messages is None):
                raise wrong("give 'prompt' or 'messages'", "prompt")
            prompt: Prompt = body.prompt or ""
            if body.messages is not None:
                prompt = messages_of(body.messages, front.config.server.limits)
            field = "prompt" if body.messages is None else "messages"
            check_size(prompt, front.text_bytes, field)
            try:
                with front.door.holding(size):
                    (ids,) = await front.texts.encode(prompt)
            except PromptError as error:
                raise wrong(str(error)) from error
            front.charge(asker, len(ids))
        capacity = front.engine.load.capacity
        return JSONResponse({"count": len(ids), "max_model_len": capacity, "tokens": ids})

    @router.post("/detokenize", responses=refusals, openapi_extra=request_of(DetokenizeBody))
    async def detokenize(request: Request) -> JSONResponse:
        """The text of token ids; special tokens are spelled out."""
        with _turn(front, request, "detokenize") as asker:
            body, size = await _body(front, bodies, request, DetokenizeBody)
            check_count(body.tokens, front.text_bytes, "tokens")
            try:
                with front.door.holding(size):
                    # encode checks that the ids are the model's.
                    (ids,) = await front.texts.encode(tuple(body.tokens))
                    (text,) = await front.texts.decode(ids, skip_special=False)
            except PromptError as error:
                raise wrong(str(error), "tokens") from error
            front.charge(asker, len(ids))
        return JSONResponse({"prompt": text})

    return router


async def _body(
    front: Front, bodies: BodyReader, request: Request, kind: type[Body]
) -> tuple[Body, int]:
    """A body, whose model is ours, and its bytes. Raises Problem."""
    async with bodies.read(request, front.config.server.limits.body_bytes) as raw:
        body, size = read(kind, raw), len(raw)
    model_of(body.model or "", front.names, front.lanes)
    return body, size


@contextmanager
def _turn(front: Front, request: Request, operation: str) -> Iterator[Asker]:
    """Who asks. Within the block the request counts among those that its key may have at once."""
    asker = front.who(request.headers)
    turn = front.begin(asker, operation)
    try:
        yield asker
    finally:
        turn.end()
