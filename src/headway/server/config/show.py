"""`headway config`: is the file sound, what is in force and who said it, and the schema."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.server.config.config import ServerConfig
from headway.server.config.problems import path as dotted
from headway.server.config.sections.durations import NONE, written
from headway.server.config.sections.section import Where
from headway.server.config.validate import check, check_memory


def validated(path: Path | None) -> str:
    """A line on what would be served, and the warnings; SettingError if nothing would."""
    config = ServerConfig.load(path)
    notes = check(config)
    check_memory(config)
    name = path.name if path else "the configuration"
    keys = f"{len(config.keys)} keys" if len(config.keys) != 1 else "1 key"
    lanes = ", ".join(config.lanes)
    said = f"{name} is sound: model {config.model.served}, lanes {lanes}, {keys}"
    return "\n".join((said, *notes, *config.warnings))


def shown(path: Path | None, as_json: bool, flags: Mapping[str, Any] | None = None) -> str:
    """Each value that is in force, with where it comes from."""
    config, layers = ServerConfig.gather(path, flags or {})
    if as_json:
        origins = {dotted(where): layers.origin(where) for where, _ in _leaves(config.effective())}
        return json.dumps({"config": config.effective(), "origins": origins}, indent=2)
    rows = [
        (dotted(where), _said(value), layers.origin(where))
        for where, value in _leaves(config.effective())
    ]
    name, value = (max(len(row[at]) for row in rows) for at in (0, 1))
    return "\n".join(f"{row[0]:<{name}}  {row[1]:<{value}}  {row[2]}" for row in rows)


def schema() -> str:
    """JSON Schema of the file, for editors and checks elsewhere."""
    made = ServerConfig.model_json_schema()
    for section in made["$defs"].values():
        for about in section["properties"].values():  # pydantic leaves defaults as they are inside
            if {"enum": [NONE, None]} in about.get("anyOf", ()):
                about["default"] = written(about["default"])
    return json.dumps(made, indent=2)


def _leaves(value: Any, at: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Sections are opened, and lists of them; other lists are values."""
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
