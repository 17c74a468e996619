"""POST /tokenize and /detokenize, as vLLM has them."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from headway.errors import PromptError
from headway.server.http.openapi import says, taken
from headway.server.intake.model_and_lane import model_of
from headway.server.intake.service import Asker, Front
from headway.server.intake.tokenizing import check_count, check_size
from headway.server.protocol.fields import DetokenizeBody, TokenizeBody
from headway.server.protocol.problem import wrong
from headway.server.protocol.reading import read
from headway.server.protocol.request import Prompt, messages_of


def text_routes(front: Front) -> APIRouter:
    router = APIRouter(tags=["text"])
    refusals = says(400, 401, 404, 413, 415, 429, 503)
    limits = front.config.server.limits

    @router.post("/tokenize", responses=refusals, openapi_extra=taken(TokenizeBody))
    async def tokenize(request: Request) -> JSONResponse:
        """A prompt's ids, or a chat's through its template."""
        with _turn(front, request, "tokenize") as asker:
            async with front.bodies.of(request, limits.body_bytes) as raw:
                body, size = read(TokenizeBody, raw), len(raw)
            del raw
            model_of(body.model or "", front.names, front.lanes)
            if (body.prompt is None) == (body.messages is None):
                raise wrong("give 'prompt' or 'messages'", "prompt")
            prompt: Prompt = body.prompt or ""
            if body.messages is not None:
                prompt = messages_of(body.messages, limits)
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

    @router.post("/detokenize", responses=refusals, openapi_extra=taken(DetokenizeBody))
    async def detokenize(request: Request) -> JSONResponse:
        """The text of ids, special tokens spelled out."""
        with _turn(front, request, "detokenize") as asker:
            async with front.bodies.of(request, limits.body_bytes) as raw:
                body, size = read(DetokenizeBody, raw), len(raw)
            del raw
            model_of(body.model or "", front.names, front.lanes)
            check_count(body.tokens, front.text_bytes, "tokens")
            try:
                with front.door.holding(size):
                    # It sees that they are the model's.
                    (ids,) = await front.texts.encode(tuple(body.tokens))
                    (text,) = await front.texts.decode(ids, skip_special=False)
            except PromptError as error:
                raise wrong(str(error), "tokens") from error
            front.charge(asker, len(ids))
        return JSONResponse({"prompt": text})

    return router


@contextmanager
def _turn(front: Front, request: Request, operation: str) -> Iterator[Asker]:
    """While it is read and answered: one of the requests that its key may have at once."""
    asker = front.who(request.headers)
    turn = front.begin(asker, operation)
    try:
        yield asker
    finally:
        turn.end()
