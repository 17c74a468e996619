"""The output of `headway config`: a check of the file, the settings in force, the schema."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.core.request import NEVER
from headway.server.config.config import ServerConfig
from headway.server.config.durations import NONE, format_duration
from headway.server.config.problems import dotted_path
from headway.server.config.sections.section import Location

BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


def validate_file(path: Path | None, model: str | None = None) -> str:
    """Summarize what would be served, with notes and warnings. model: instead of the file's.
    Raises HeadwayError if the server could not start."""
    from headway.server.config.validate import check_files, check_memory

    config = ServerConfig.load(path, {"models": [{"path": model}]} if model else None)
    notes = check_files(config)
    check_memory(config)
    lanes = ", ".join(config.lanes)
    served = ", ".join(model.served_name for model in config.models)
    what = "model" if len(config.models) == 1 else "models"
    routes = f", routes {', '.join(config.routes)}" if config.routes else ""
    summary = f"{what} {served}{routes}, lanes {lanes}, {keys_of(config)}"
    return "\n".join((sound(path, summary), *notes, *config.all_notes, *config.warnings))


def sound(path: Path | None, served: str) -> str:
    """The first line about a sound configuration. served: what would be served."""
    return f"{path.name if path else 'the configuration'} is sound: {served}"


def keys_of(config: ServerConfig) -> str:
    """How many keys there are, in words."""
    return f"{len(config.keys)} keys" if len(config.keys) != 1 else "1 key"


def show_settings(path: Path | None, as_json: bool, flags: Mapping[str, Any] | None = None) -> str:
    """Every value in force and its source, as a table or as JSON."""
    config, layers = ServerConfig.load_with_origins(path, flags or {})
    if as_json:
        origins = {
            dotted_path(where): layers.origin(where) for where, _ in _leaves(config.effective())
        }
        return json.dumps({"config": config.effective(), "origins": origins}, indent=2)
    rows = [
        (dotted_path(where), _said(value), layers.origin(where))
        for where, value in _leaves(config.effective())
    ]
    name, value = (max(len(row[at]) for row in rows) for at in (0, 1))
    return "\n".join(f"{row[0]:<{name}}  {row[1]:<{value}}  {row[2]}" for row in rows)


def file_schema() -> str:
    """The JSON Schema of the file, for editors and other tools."""
    schema = ServerConfig.model_json_schema()
    for section in schema["$defs"].values():
        for about in section["properties"].values():  # pydantic's defaults are in nanoseconds
            has_none = {"enum": [NONE, None]} in about.get("anyOf", ())
            if about.get("default") == NEVER or (has_none and about["default"] is not None):
                about["default"] = format_duration(about["default"])
    return json.dumps(_with_bounds(schema), indent=2)


def _with_bounds(part: Any) -> Any:
    """A part of the schema, with the schema's own words for bounds. Behind a validator, pydantic
    leaves its own, which no editor reads."""
    if isinstance(part, dict):
        return {BOUNDS.get(name, name): _with_bounds(value) for name, value in part.items()}
    return [_with_bounds(each) for each in part] if isinstance(part, list) else part


def _leaves(value: Any, at: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Every value with its location. A list is one value, unless it is a list of sections."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*at, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*at, index))
    else:
        yield at, value


def _said(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
