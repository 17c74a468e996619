"""Read a YAML file as a mapping and check its values. Each error names the place in the file."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from headway.errors import SettingError, did_you_mean

DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"  # a number before a unit, as a pattern
MERGE = "tag:yaml.org,2002:merge"  # the type of the key <<

# What yaml passes on for a value that has not the form of its type, such as 2026-02-30.
FORMLESS = (AttributeError, LookupError, OverflowError, ValueError)


class DistinctLoader(yaml.SafeLoader):
    """A loader that refuses duplicate keys, of which YAML would silently take the last one, and
    values that contain themselves."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The node's value, whole. Raises ConstructorError."""
        try:
            return super().construct_object(node, deep=True)
        except FORMLESS:
            problem = f"the value is not a valid {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The mapping with its keys as in the file, before anything is merged into it."""
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            if key.value in seen:
                problem = f"{key.value!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return node


def load_yaml(text: str, loader: type[DistinctLoader] = DistinctLoader) -> Any:
    """The value of a text. Raises YAMLError, also if the value is nested too deeply."""
    try:
        return yaml.load(text, loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def read_yaml(path: Path) -> Mapping[str, Any]:
    """The mapping in a YAML file. Raises SettingError, naming the file."""
    try:
        return mapping(load_yaml(path.read_text(encoding="utf-8")), path.name)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingError(f"{path.name} cannot be read: {why}") from error
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())
        raise SettingError(f"{path.name} is not YAML: {message}") from error


def mapping(value: Any, where: str) -> dict[str, Any]:
    """The value, if it is a mapping; else SettingError."""
    if not isinstance(value, dict):
        raise SettingError(f"{where}: a mapping of names to values is wanted, not {value!r}")
    return value


def known(given: Collection[Any], allowed: Collection[str], where: str) -> None:
    """Raise SettingError for the first key that is not allowed."""
    for key in given:
        if key not in allowed:
            raise SettingError(f"{where}: {key!r} is not known{did_you_mean(str(key), allowed)}")


def number(value: Any, where: str, least: float = 0.0) -> float:
    """The value, if it is a number of at least `least`; else SettingError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value < 1e15:
        raise SettingError(f"{where} is {value!r}, not a number")
    if value < least:
        raise SettingError(f"{where} is {value}; it must be {least:g} or more")
    return float(value)


def whole(value: Any, where: str, least: int = 0) -> int:
    """The value, if it is a whole number of at least `least`; else SettingError."""
    exact = number(value, where, least)
    if exact != int(exact):
        raise SettingError(f"{where} is {value}; a whole number is wanted")
    return int(exact)


def wholes(value: Any, where: str) -> tuple[int, ...]:
    """The value as a tuple, if it is a list of positive whole numbers; else SettingError."""
    if not isinstance(value, list | tuple):
        raise SettingError(f"{where} is {value!r}; a list of whole numbers is wanted")
    return tuple(whole(each, where, 1) for each in value)
