"""The part of a configuration that a version holds, and a configuration with a version in it."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.config.ignored import own_lanes
from headway.server.config.problems import describe_problems
from headway.server.config.sections.engine import EngineSettings

ENGINE = ("strategy", "slots", "step_tokens")  # of the section `engine`
SECTIONS = ("engine", "lanes")


def bases(config: ServerConfig) -> dict[str, ServerConfig]:
    """For each checkpoint, by its own name, the configuration that its versions are versions of.
    It says nothing of the other models, whose names keys and routes may have."""
    if len(config.models) == 1:
        return {config.model.served_name: config}
    keys = tuple([key.model_copy(update={"models": ()}) for key in config.keys])
    found = dict[str, ServerConfig]()
    for entry in config.entries:
        lanes = own_lanes(entry.lanes, entry.strategy)
        alone = {"keys": keys, "routes": {}, "lanes": lanes}
        found[entry.model.served_name] = entry.model_copy(update=alone)
    return found


def versioned(config: ServerConfig) -> dict[str, Any]:
    """What a version holds of it, as JSON, with every default filled in."""
    return config.model_dump(mode="json", include={"engine": set(ENGINE), "lanes": True})


def check_change(change: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """Raises SettingError for a change of what cannot change while requests are served, by name.

    base: the version that is to be changed.
    """
    restart = "cannot change while requests are served: set it in the file, and restart"
    for section, values in change.items():
        if section not in SECTIONS:
            raise SettingError(f"{section} {restart}")
        if not isinstance(values, Mapping):
            raise SettingError(f"{section}: a mapping of names to values is wanted")
    for name in change.get("engine", ()):
        if name not in ENGINE:
            raise SettingError(f"engine.{name} {restart}")
    for name in change.get("lanes", ()):
        if name not in base["lanes"]:
            raise SettingError(f"lanes.{name}: lanes neither come nor go while requests are served")


def with_version(config: ServerConfig, values: Mapping[str, Any], name: str) -> ServerConfig:
    """The configuration with a version's values. name: of the version, for errors.

    Raises SettingError for what is wrong with them, as `headway config validate` has it.
    """
    engine = {each: getattr(config.engine, each) for each in EngineSettings.model_fields}
    fields = {each: getattr(config, each) for each in ServerConfig.model_fields}
    fields |= {"engine": engine | dict(values["engine"]), "lanes": values["lanes"]}
    try:
        return ServerConfig(**fields)
    except ValidationError as error:
        raise SettingError(describe_problems(error, lambda where: name)[0]) from None
