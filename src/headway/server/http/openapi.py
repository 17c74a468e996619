"""What /openapi.json says. Bodies are read by hand, so that their errors are 400 and name the
field (see routes_answers.py); here their models are described all the same.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from headway.server.protocol.fields import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

BODIES = (ChatBody, CompletionBody, TokenizeBody, DetokenizeBody)
WHERE = "#/components/schemas/"
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
MEANT = {
    400: "The request is at fault; `param` names the field.",
    401: "No API key, or none of this server's.",
    403: "The key may not use this lane.",
    404: "There is no such model, request or path.",
    405: "The path knows other methods.",
    408: "Its deadline has passed, or the longest legal wait of its lane.",
    409: "It was cancelled, or a later request has taken its place.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "The lane is full, or the key's limit is reached; come back after Retry-After.",
    500: "A fault of the server.",
    503: "The model is loading, or the server is leaving, or its engine is down.",
}
HEADERS = {
    "X-Headway-Lane": "The lane, before all other ways to name one.",
    "X-Headway-Supersede": "A request with the same value, of the same tenant, is replaced.",
    "X-Headway-Timeout-Ms": "Not ended by then, it is dropped.",
    "X-Slo-Ttft-Ms": "First token by then; it may tighten the lane's budget, never loosen it.",
    "X-Slo-Tpot-Ms": "Time per further token; likewise.",
    "X-Request-Id": "Echoed, and good for cancelling.",
}


def says(*statuses: int, kind: str = "application/json") -> dict[int | str, dict[str, Any]]:
    """The responses of a route: 200, and these in the nested error body."""
    schema = {"schema": {"type": "object"}} if kind == "application/json" else {}
    good = {"description": "The answer.", "content": {kind: schema}}
    body = {"application/json": {"schema": {"$ref": f"{WHERE}Error"}}}
    said: dict[int | str, dict[str, Any]] = {200: good}
    for each in statuses:
        said[each] = {"description": MEANT[each], "content": body}
    return said


def answers() -> dict[int | str, dict[str, Any]]:
    """Of the two endpoints that generate."""
    responses = says(400, 401, 403, 404, 408, 409, 413, 415, 429, 500, 503)
    responses[200]["content"] |= {"text/event-stream": {}}
    return responses


def taken(model: type[BaseModel], headers: bool = False) -> dict[str, Any]:
    """A route's body, and whether it reads the headers above."""
    content = {"application/json": {"schema": {"$ref": WHERE + model.__name__}}}
    said: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    if headers:
        string = {"type": "string"}
        said["parameters"] = [
            {"name": name, "in": "header", "required": False, "schema": string, "description": what}
            for name, what in HEADERS.items()
        ]
    return said


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """FastAPI's document with our models, and without the 422 that we never answer."""
    _, said = models_json_schema(
        [(body, "validation") for body in BODIES], ref_template=f"{WHERE}{{model}}"
    )
    paths: Mapping[str, Mapping[str, Any]] = document["paths"]
    for path in paths.values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    return document | {"components": {"schemas": {**said["$defs"], "Error": ERROR}}}
