"""read: parses bytes into a checked body, or raises a 400 that names the field at fault."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json

from headway.server.protocol.fields import (
    CALLS,
    MOST_ENTRIES,
    NO_CHANGE,
    PARTS,
    ROLES,
    UNSUPPORTED,
    ChatMessage,
    GenerationBody,
    JsonSchema,
    ResponseFormat,
    StreamOptions,
    StructuredOutputs,
    TextPart,
)
from headway.server.protocol.problem import Problem, wrong

Body = TypeVar("Body", bound=BaseModel)
SHOWN = 100  # characters of a name that an error message repeats
INNER = (ChatMessage, TextPart, StreamOptions, ResponseFormat, JsonSchema, StructuredOutputs)


def read(model: type[Body], raw: bytes | bytearray) -> Body:
    """Parse and check a body strictly: a string never counts as a number. Raises Problem."""
    try:
        body = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise wrong(f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise wrong("the body must be a JSON object")
    _check_sizes(body)
    for name in UNSUPPORTED.keys() & body.keys() - model.model_fields.keys():
        if not issubclass(model, GenerationBody):
            break  # here it is an unknown field like any other
        value = body.pop(name)
        if value is not None and not _changes_nothing(name, value):
            raise _unsupported(name, UNSUPPORTED[name])
    try:
        return model.model_validate(body)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    _check_message(body, errors)
    raise _validation_problem(model, body, errors)


def _changes_nothing(name: str, value: Any) -> bool:
    same = NO_CHANGE.get(name)
    return type(value) is type(same) and value == same  # in Python, True == 1


def _unsupported(path: str, why: str) -> Problem:
    return wrong(f"'{path}': {why}", path, "unsupported_parameter")


def _check_message(body: dict[str, Any], errors: Sequence[ErrorDetails]) -> None:
    """Raises Problem if the message at fault has what OpenAI allows but we do not, such as a tool
    call. Validation ends at the first such message, and at its first such part."""
    places = [each["loc"][1:] for each in errors if each["loc"][0] == "messages"]
    at = next((each[0] for each in places if each), None)
    if not isinstance(at, int) or not isinstance(turn := body["messages"][at], dict):
        return
    path, role, content = f"messages.{at}", turn.get("role"), turn.get("content")
    if isinstance(role, str) and role in ROLES:
        roles = "a role is 'system', 'developer', 'user' or 'assistant'"
        raise _unsupported(f"{path}.role", f"{ROLES[role]}; {roles}")
    for name, why in CALLS.items():
        if turn.get(name) is not None:
            raise _unsupported(f"{path}.{name}", why)
    numbers = [part for each in places for part in each[1:] if isinstance(part, int)]
    part = content[numbers[0]] if isinstance(content, list) and numbers else None
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in PARTS:
        why = f"{kind!r} is not supported; a part is of type 'text'"
        raise _unsupported(f"{path}.content.{numbers[0]}.type", why)


def _check_sizes(body: dict[str, Any]) -> None:
    """Bound the entries of the body and of the objects in it, since each unknown entry becomes an
    error. The models bound the objects in lists. Raises Problem."""
    for path, each in _objects(body):
        if len(each) > MOST_ENTRIES:
            what = f"'{path}'" if path else "the body"
            raise wrong(f"{what} has more than {MOST_ENTRIES} entries", path)


def _objects(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The objects that are checked against a model or a table, each with its path."""
    yield "", body
    for name, value in body.items():
        if isinstance(value, dict):
            yield name[:SHOWN], value
            for inner, deeper in value.items():
                if isinstance(deeper, dict):
                    yield f"{name[:SHOWN]}.{inner[:SHOWN]}", deeper


def _validation_problem(
    model: type[BaseModel], body: dict[str, Any], errors: Sequence[ErrorDetails]
) -> Problem:
    """The problem of the first field at fault. If a field has several forms, the most deeply
    nested error belongs to the form that was meant.
    """
    field = [each for each in errors if each["loc"][0] == errors[0]["loc"][0]]
    first = max(field, key=lambda each: len(_path(body, each)))
    param = ".".join(_path(body, first))
    match first["type"]:
        case "extra_forbidden":
            name = str(first["loc"][-1])[:SHOWN]
            known = _names([model] if len(first["loc"]) == 1 else INNER)
            near = get_close_matches(name, known, 1)
            hint = f": did you mean '{near[0]}'?" if near else ""
            return wrong(f"'{param}' is not a known field{hint}", param, "unknown_parameter")
        case "missing":
            return wrong(f"'{param}' is missing", param, "missing_required_parameter")
        case _:
            same = [each["msg"] for each in field if ".".join(_path(body, each)) == param]
            why = " or ".join(dict.fromkeys(same))
            return wrong(f"'{param}': {why}", param, "invalid_value")


def _names(models: Iterable[type[BaseModel]]) -> list[str]:
    return [field.alias or name for each in models for name, field in each.model_fields.items()]


def _path(body: Any, error: ErrorDetails) -> list[str]:
    """An error's path in the body, without the names of forms that pydantic inserts."""
    path, value = list[str](), body
    for part in error["loc"]:
        known = isinstance(value, dict) and part in value
        if known or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            value = value[part]
            path.append(str(part)[:SHOWN])
    return [*path, str(error["loc"][-1])] if error["type"] == "missing" else path
