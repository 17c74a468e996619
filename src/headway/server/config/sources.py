"""Read the sources of a configuration and merge them: flag > environment > file > default.

They are merged key by key. A list counts as one value.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from headway.errors import SettingError, did_you_mean
from headway.server.config.problems import describe_problems, dotted_path
from headway.server.config.sections.section import Location, Section
from headway.yaml_values import MERGE, DistinctLoader, load_yaml

DEFAULT = "default"
STORES: dict[tuple[str, ...], str] = {  # options that are not named like their setting
    ("jobs", "store"): "--jobs",
    ("ledger", "url"): "--ledger",
    ("versions", "store"): "--versions",
}
OF_ENDPOINTS = {"trace", "arrivals"}  # one of them is in each endpoint, and in no section
TEXT = "tag:yaml.org,2002:str"  # the tag of a key that YAML reads as text

Config = TypeVar("Config", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Layers:
    """The merged values of all sources so far, and the source of each value."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Location, str] = field(default_factory=dict)  # source of each value
    # Where a name may stand for a mapping: what gives the mapping. Raises SettingError.
    named: Mapping[Location, Callable[[str], Mapping[str, Any]]] = field(default_factory=dict)

    def add(self, source: Mapping[str, Any], origin: Callable[[Location], str]) -> None:
        """Merge a source, which overrides earlier ones. origin: names the source of a location."""
        self._add(self.values, source, origin, ())

    def _add(
        self,
        values: dict[str, Any],
        source: Mapping[str, Any],
        origin: Callable[[Location], str],
        at: Location,
    ) -> None:
        for key, value in source.items():
            here = (*at, str(key))
            if isinstance(value, Mapping) and value:
                if not isinstance(values.get(key), dict):
                    self._expand(values, key, here)
                self._add(values[key], value, origin, here)
            else:
                self._forget(here)
                values[key] = value
                self.origins.update(dict.fromkeys(_leaves(value, here), origin(here)))

    def _expand(self, values: dict[str, Any], key: str, here: Location) -> None:
        """Replace a value by a mapping that a source can change in parts: the mapping that a name
        stands for, else an empty one."""
        name, origin, parts = values.get(key), self.origin(here), dict[str, Any]()
        if here in self.named and isinstance(name, str):
            try:
                parts = dict(self.named[here](name))
            except SettingError as error:
                raise SettingError(f"{origin}: {dotted_path(here)}: {error}") from None
        self._forget(here)
        values[key] = parts
        self.origins.update(dict.fromkeys(_leaves(parts, here), origin) if parts else {})

    def _forget(self, where: Location) -> None:
        for each in [one for one in self.origins if one[: len(where)] == where]:
            del self.origins[each]

    def origin(self, where: Location) -> str:
        """The source of a value, or the sources of a section's values; DEFAULT if none set it.

        What an entry of `models` leaves out of its `engine` has the source of the section's value.
        """
        is_entrys = where[:1] == ("models",) and where[2:3] == ("engine",) and len(where) > 3
        if is_entrys and not any(one[:4] == where[:4] for one in self.origins):
            where = where[2:]
        for length in range(len(where), 0, -1):
            if (found := self.origins.get(where[:length])) is not None:
                return found
        inside = [found for one, found in self.origins.items() if one[: len(where)] == where]
        return " and ".join(dict.fromkeys(each for each in inside if each != DEFAULT)) or DEFAULT

    def build(self, kind: type[Config]) -> Config:
        """The checked configuration. Raises SettingError with the first problem."""
        try:
            return kind(**self.values)
        except ValidationError as error:
            first, *others = describe_problems(error, self.origin)
            raise SettingError(first + (f" (and {len(others)} more)" if others else "")) from None


def _leaves(value: Any, at: Location) -> Iterator[Location]:
    """The locations of all values inside a value; an empty section counts as one value."""
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        inner = enumerate(value)
    elif value is not None:
        yield at
        return
    empty = True
    for key, each in inner:
        empty = False
        yield from _leaves(each, (*at, key))
    if empty:
        yield (*at, "")


def read_file(path: Path) -> dict[str, Any]:
    """Read a YAML file's sections, without empty ones. Raises SettingError."""
    try:
        found = load_yaml(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingError(f"{path} cannot be read: {reason}") from error
    except yaml.YAMLError as error:
        raise SettingError(f"{path.name} is not YAML: {_marked(error)}") from error
    if found is not None and not isinstance(found, dict):
        raise SettingError(f"{path.name}: sections with names are wanted, not {found!r}")
    if found and all(
        isinstance(each, dict) and OF_ENDPOINTS & each.keys() for each in found.values()
    ):
        raise SettingError(
            f"{path.name} has the endpoints of `headway compare`, `bench` or `tune`; a server's "
            "file has its lanes under `lanes`: docs/server-config.md"
        )
    return {key: value for key, value in (found or {}).items() if value is not None}


def _marked(error: yaml.YAMLError) -> str:
    """The parser's message, without the line's text, which may contain a key."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


class _Loader(DistinctLoader):
    """A loader that also refuses a key that YAML does not read as text, such as `on` or 1."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag not in (MERGE, TEXT):
                problem = f"the name `{key.value}` must be in quotes"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        return super().construct_mapping(node, deep)


def read_environment(kind: type[BaseSettings], others: Iterable[str]) -> dict[str, Any]:
    """Read the HEADWAY_... variables. others: variables that are read elsewhere. Raises
    SettingError."""
    _refuse_unknown(kind, set(others))
    _refuse_twice(str(kind.model_config["env_prefix"]), set(others))
    _refuse_parts(kind)
    try:
        return EnvSettingsSource(kind)()
    except SettingsError as error:
        cause = error.__cause__
        raise SettingError(f"environment: {error}: JSON is wanted ({cause})") from None


def refuse_new(kind: type[BaseSettings], section: str, before: Mapping[str, Any]) -> None:
    """Raise SettingError for a variable that sets part of an unknown entry of a section, such as a
    limit of a misspelt lane. before: the merged earlier sources. Entries in the section's own
    variable are known too.
    """
    own, nested = _name(kind, (section,)), str(kind.model_config["env_nested_delimiter"])
    given = {name.upper(): value for name, value in os.environ.items()}
    sources = before.get(section), json.loads(given.get(own, "{}"))
    known = [name for each in sources if isinstance(each, Mapping) for name in each]
    for name in given:
        part = name.removeprefix(own + nested).partition(nested)[0].lower()
        if name.startswith(own + nested) and part not in known:
            hint = did_you_mean(part, known) if known else "; there are none"
            raise SettingError(f"{name}: {section}.{part} is not known{hint}")


def flag_name(where: Location) -> str:
    """The option or argument of `headway serve` that sets a location."""
    if where[:1] == ("models",):
        return "MODEL"
    setting = tuple(map(str, where[:2]))
    return STORES.get(setting, f"--{setting[-1]}".replace("_", "-"))


def variable_name(kind: type[BaseSettings], where: Location) -> str:
    """The variable that sets a location: its own, or that of an enclosing section."""
    for length in range(len(where), 0, -1):
        if (name := _name(kind, where[:length])) in {each.upper() for each in os.environ}:
            return name
    return _name(kind, where)


def _name(kind: type[BaseSettings], where: Location) -> str:
    nested = str(kind.model_config["env_nested_delimiter"])
    return f"{kind.model_config['env_prefix']}{nested.join(map(str, where))}".upper()


def _refuse_unknown(kind: type[BaseSettings], others: set[str]) -> None:
    """Raise SettingError for a misspelt variable, which would otherwise be ignored silently.

    Beside a service called `headway`, Kubernetes sets HEADWAY_SERVICE_HOST, HEADWAY_PORT and so on
    in every container; those are ignored.
    """
    prefix, nested = kind.model_config["env_prefix"], kind.model_config["env_nested_delimiter"]
    host = "_SERVICE_HOST"
    names = [name for name in map(str.upper, os.environ) if name.startswith(prefix)]
    services = [name.removesuffix(host) for name in names if name.endswith(host)]
    theirs = tuple(f"{each}_{end}" for each in services for end in ("SERVICE_", "PORT"))
    for name in names:
        section = name.removeprefix(prefix).split(nested or "")[0].lower()
        if section in kind.model_fields or name in others or name.startswith(theirs):
            continue
        known = [*_names(kind), *sorted(others)]
        end = f"{nested}{name.removeprefix(prefix)}"  # HEADWAY_PORT is HEADWAY_SERVER__PORT
        candidates = [each for each in known if each.endswith(end)] or known
        raise SettingError(f"environment: {name} is not known{did_you_mean(name, candidates)}")


def _refuse_twice(prefix: str, others: set[str]) -> None:
    """Raise SettingError for a duplicate key in JSON; the last one would win silently."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [each for each, _ in pairs]
        if twice := [each for each in names if names.count(each) > 1]:
            raise SettingError(f"{variable}: {twice[0]!r} is there twice")
        return dict(pairs)

    for name, value in os.environ.items():
        variable = name.upper()
        if variable.startswith(prefix) and variable not in others:
            try:
                json.loads(value, object_pairs_hook=distinct)
            except SettingError:
                raise
            except ValueError:  # not JSON
                continue


def _refuse_parts(kind: type[BaseSettings]) -> None:
    """Raise SettingError for a variable that sets a part of another variable's value if that is no
    mapping, such as a part beside a strategy's name; the part would be dropped silently."""
    nested = str(kind.model_config["env_nested_delimiter"])
    given = {name.upper(): value for name, value in os.environ.items()}
    for name in given:
        whole = name.rpartition(nested)[0]
        if name.startswith(str(kind.model_config["env_prefix"])) and whole in given:
            try:
                is_mapping = isinstance(json.loads(given[whole]), dict)
            except ValueError:
                is_mapping = False
            if not is_mapping:
                raise SettingError(f"{name}: {whole} is set too, and has no parts")


def _names(kind: type[BaseSettings]) -> list[str]:
    found = []
    for name, about in kind.model_fields.items():
        found.append(_name(kind, (name,)))
        inner = about.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            found += [_name(kind, (name, each)) for each in inner.model_fields]
    return found


def without_none(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, without empty sections."""
    inner = {
        key: without_none(each) if isinstance(each, Mapping) else each
        for key, each in flags.items()
    }
    return {key: each for key, each in inner.items() if each is not None and each != {}}
