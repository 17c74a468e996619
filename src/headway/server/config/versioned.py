"""The part of a configuration that a version holds, and applying a version to a configuration."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from headway.errors import SettingError
from headway.rollout.proposal import differences, merged
from headway.server.config.config import ServerConfig
from headway.server.config.ignored import check_most, check_set, own_lanes
from headway.server.config.problems import describe_problems
from headway.server.config.sections.engine import EngineSettings
from headway.server.config.sources import Layers

ENGINE = ("strategy", "slots", "step_tokens")  # keys of the section `engine`
SECTIONS = ("engine", "lanes")


def bases(config: ServerConfig) -> dict[str, ServerConfig]:
    """For each checkpoint, by its own name, the configuration that its versions change. With
    several models it has no routes and no keys' `models`, since those may name the other models."""
    if len(config.models) == 1:
        return {entry.model.served_name: entry for entry in config.entries}
    keys = tuple([key.model_copy(update={"models": ()}) for key in config.keys])
    found = dict[str, ServerConfig]()
    for entry in config.entries:
        lanes = own_lanes(entry.lanes, entry.strategy)
        alone = {"keys": keys, "routes": {}, "lanes": lanes}
        found[entry.model.served_name] = entry.model_copy(update=alone)
    return found


def versioned(config: ServerConfig) -> dict[str, Any]:
    """The part of a configuration that a version holds, as JSON, with all defaults filled in: also
    the default strategy, which depends on the lanes and on engine.cost."""
    found = config.model_dump(mode="json", include={"engine": set(ENGINE), "lanes": True})
    found["engine"]["strategy"] = config.strategy.model_dump(mode="json")
    return found


def check_change(change: Mapping[str, Any], base: Mapping[str, Any]) -> None:
    """Raise SettingError, with the name, for a change that is impossible while requests are served.

    base: the version to change.
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
    for name, values in change.get("lanes", {}).items():
        if name not in base["lanes"]:
            raise SettingError(f"lanes.{name}: lanes neither come nor go while requests are served")
        if not isinstance(values, Mapping):  # null is a lane without limits
            raise SettingError(f"lanes.{name}: a mapping of names to values is wanted")


def with_version(config: ServerConfig, values: Mapping[str, Any], name: str) -> ServerConfig:
    """The configuration with a version's values. name: the version's name, for errors.

    Raises SettingError for the first invalid value, as `headway config validate` does.
    """
    engine = {each: getattr(config.engine, each) for each in EngineSettings.model_fields}
    fields = {each: getattr(config, each) for each in ServerConfig.model_fields}
    fields |= {"engine": engine | dict(values["engine"]), "lanes": values["lanes"]}
    try:
        return ServerConfig(**fields)
    except ValidationError as error:
        raise SettingError(describe_problems(error, lambda where: name)[0]) from None


def with_change(
    file: ServerConfig, base: Mapping[str, Any], change: Mapping[str, Any], name: str
) -> ServerConfig:
    """The configuration with a version's values and a change of them. file: the configuration of
    the version's model in the file. base: the version's values. name: the change's name, for
    errors. Raises SettingError."""
    check_change(change, base)
    config = with_version(file, merged(base, change), name)
    check_effect(config, change, name)
    if not differences(base, versioned(config)):
        raise SettingError("it changes nothing of the promoted version")
    return config


def check_effect(config: ServerConfig, change: Mapping[str, Any], name: str) -> None:
    """Raise SettingError for a setting of the change that has no effect, and for a lane's `most`
    above what there is, as `headway config validate` does. config: with the change. name: the
    change's name, for errors."""
    changed, whole = Layers(), Layers()
    changed.add(change, lambda where: name)
    whole.add(versioned(config), lambda where: name)
    check_set(config.lanes, config.strategies, changed.origins, functions=False)
    check_most(config.lanes, [config.policies], whole.origins)


def put_in_force(config: ServerConfig, version: ServerConfig) -> ServerConfig:
    """The configuration of a server with one checkpoint, with what a version of it holds. Functions
    and all other settings stay: so do the lane of jobs and the default lane, which priorities and
    the order of lanes may have chosen at the start."""
    held = {name: getattr(version.engine, name) for name in ENGINE}
    changed: dict[str, Any] = {
        "lanes": {name: version.lanes[name] for name in config.lanes},
        "jobs": config.jobs.model_copy(update={"lane": config.jobs_lane}),
    }
    models = list(config.models)
    at = next(at for at, model in enumerate(models) if not model.function)
    if (own := models[at].engine).model_fields_set:
        models[at] = models[at].model_copy(update={"engine": own.model_copy(update=held)})
        changed["models"] = tuple(models)
    else:
        changed["engine"] = config.engine.model_copy(update=held)
    return config.model_copy(update=changed)
