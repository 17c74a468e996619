"""ConfigReader: a checkpoint's JSON, read key by key; what is not supported is collected."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError, first_line

Raw = Mapping[str, Any]  # a JSON object


def read_json(path: Path) -> Raw:
    """Read one JSON object. Raises CheckpointError, naming the file."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: this is not a checkpoint's folder") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {first_line(error)}") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return raw


class ConfigReader:
    """Reads one JSON object, and collects what it asks for that is not supported.

    A value that makes no sense raises CheckpointError at once. One that makes sense but is not
    supported adds a reason to `refused`, so that the user learns all reasons and not just the
    first.
    """

    def __init__(self, raw: Raw, where: str, refused: list[str] | None = None) -> None:
        self.raw, self.where = raw, where
        self.refused: list[str] = [] if refused is None else refused

    def __contains__(self, key: str) -> bool:
        return self.raw.get(key) is not None

    def section(self, key: str) -> "ConfigReader":
        """A reader of the object under a key, empty if there is none. It shares `refused`."""
        part = self.raw.get(key) or {}
        if not isinstance(part, dict):
            raise CheckpointError(f"{self.where}: {key} is not a JSON object")
        return ConfigReader(part, self.where, self.refused)

    def merged_with(self, other: "ConfigReader") -> "ConfigReader":
        """Both objects as one; the other's values win."""
        return ConfigReader({**self.raw, **other.raw}, self.where, self.refused)

    def refuse(self, why: str) -> None:
        """Note a reason why the model cannot be computed."""
        self.refused.append(why)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of this key. A key that is missing or null gives the default."""
        value = self.raw.get(key)
        return default if value is None else value

    def flag(self, key: str, default: bool = False) -> bool:
        """The value of this key as a bool. A key that is missing or null gives the default."""
        return bool(self.get(key, default))

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """The integer under a key, at least 1 or 0. Raises CheckpointError for anything else."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"must be a positive integer{'' if least else ' or 0'}", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """The positive number under a key. Raises CheckpointError for anything else."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise self.error(key, "must be a positive number", value)
        return float(value)

    def array(self, key: str) -> list[Any]:
        """The list under a key, empty if there is none."""
        value = self.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, "must be a list", value)
        return value

    def error(self, key: str, why: str, value: Any) -> CheckpointError:
        """An error that names the file, the key, its value and the reason. Not raised here."""
        return CheckpointError(f"{self.where}: {key} = {shortened(value)} {why}")


def shortened(value: object) -> str:
    """A value as Python writes it, in at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
