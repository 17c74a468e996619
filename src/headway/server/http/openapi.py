"""Completes /openapi.json with the models of the request bodies.

FastAPI does not know them: routes parse their bodies themselves, so that a wrong field is answered
with a 400 that names it.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from headway.server.protocol.fields import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from headway.server.protocol.vectors.fields import (
    ClassifyBody,
    EmbeddingBody,
    RerankBody,
    ScoreBody,
)

BODIES = (
    *(ChatBody, CompletionBody, TokenizeBody, DetokenizeBody),
    *(EmbeddingBody, RerankBody, ScoreBody, ClassifyBody),
)
SCHEMAS = "#/components/schemas/"
REF = f"{SCHEMAS}{{model}}"
NULLABLE = {"type": ["string", "null"]}
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": NULLABLE,
                "code": NULLABLE,
            },
        }
    },
}
DESCRIPTIONS = {
    400: "The request is at fault; `param` names the field.",
    401: "No API key, or none of this server's.",
    403: "The key may not use this lane.",
    404: "There is no such model, request or path.",
    405: "The path has other methods.",
    408: "Its deadline or the longest wait of its lane has passed.",
    409: "It was cancelled, or superseded by a later request.",
    413: "The body is too large.",
    415: "The content-type is not application/json, or the body is compressed.",
    429: "The lane is full, or the key's limit is reached; come back after Retry-After.",
    500: "An error of the server.",
    503: "The model is loading, the server is draining, or its engine is down.",
}
HEADERS = {
    "X-Headway-Lane": "The lane; goes before all other ways to name one.",
    "X-Headway-Supersede": "Replaces the tenant's request that has the same value.",
    "X-Headway-Expected-Tokens": "Tokens that the caller expects in each answer.",
    "X-Headway-Timeout-Ms": "The request is dropped if it has not ended by then.",
    "X-Headway-Due-Ms": "When it should have ended. It takes its turn by this.",
    "X-Slo-Ttft-Ms": "Budget of the first token; may tighten the lane's, never loosen it.",
    "X-Slo-Tpot-Ms": "Budget of the mean time per further token; likewise.",
    "X-Request-Id": "Sent back in the answer; also names the request for cancelling it.",
}


def responses(*statuses: int, kind: str = "application/json") -> dict[int | str, dict[str, Any]]:
    """A route's responses: 200 with this content type, and these statuses with an error body."""
    schema = {"schema": {"type": "object"}} if kind == "application/json" else {}
    answer = {"description": "The answer.", "content": {kind: schema}}
    error = {"application/json": {"schema": {"$ref": f"{SCHEMAS}Error"}}}
    found: dict[int | str, dict[str, Any]] = {200: answer}
    for each in statuses:
        found[each] = {"description": DESCRIPTIONS[each], "content": error}
    return found


def generation(model: type[BaseModel], *, streams: bool = True) -> dict[str, Any]:
    """FastAPI's arguments for a route whose calls run in lanes, with a body of this model."""
    found = responses(400, 401, 403, 404, 408, 409, 413, 415, 429, 500, 503)
    if streams:
        found[200]["content"] |= {"text/event-stream": {}}
    string = {"type": "string"}
    headers = [
        {"name": name, "in": "header", "required": False, "schema": string, "description": what}
        for name, what in HEADERS.items()
    ]
    return {"responses": found, "openapi_extra": request_of(model) | {"parameters": headers}}


def request_of(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI entry for a request body of this model."""
    content = {"application/json": {"schema": {"$ref": SCHEMAS + model.__name__}}}
    return {"requestBody": {"required": True, "content": content}}


def models_of_bodies() -> dict[str, Any]:
    """The schemas of the bodies that our handlers parse, by name."""
    _, models = models_json_schema([(body, "validation") for body in BODIES], ref_template=REF)
    found: dict[str, Any] = models["$defs"]
    return found


def complete(document: dict[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """FastAPI's document plus these models, without the 422 that is never sent."""
    paths: Mapping[str, Mapping[str, Any]] = document["paths"]
    for path in paths.values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    return document | {"components": {"schemas": {**models, "Error": ERROR}}}
