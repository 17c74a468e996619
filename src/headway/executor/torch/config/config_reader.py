"""ConfigReader: reads a checkpoint's JSON key by key and collects what is not supported."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError, first_line

Raw = Mapping[str, Any]  # a JSON object
LARGEST = 1e30  # of numbers: float32 must hold what is computed with them


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
    """Reads one JSON object and collects what it asks for that is not supported.

    An invalid value raises CheckpointError at once. A valid but unsupported one adds a reason to
    `refused`, so the user learns all reasons, not just the first.
    """

    def __init__(self, raw: Raw, where: str, refused: list[str] | None = None) -> None:
        self.raw, self.where = raw, where
        self.refused: list[str] = [] if refused is None else refused

    def __contains__(self, key: str) -> bool:
        return self.raw.get(key) is not None

    def section(self, key: str) -> "ConfigReader":
        """A reader of the object under a key, or of an empty one. Both readers share `refused`."""
        part = self.raw.get(key) or {}
        if not isinstance(part, dict):
            raise CheckpointError(f"{self.where}: {key} is not a JSON object")
        return ConfigReader(part, self.where, self.refused)

    def merged_with(self, other: "ConfigReader") -> "ConfigReader":
        """Merge both objects; the other's values win."""
        return ConfigReader({**self.raw, **other.raw}, self.where, self.refused)

    def refuse(self, why: str) -> None:
        """Add a reason why the model cannot be computed."""
        self.refused.append(why)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default if the key is missing or null."""
        value = self.raw.get(key)
        return default if value is None else value

    def flag(self, key: str, default: bool = False) -> bool:
        """The value of a key as a bool, or the default if the key is missing or null."""
        return bool(self.get(key, default))

    def count(
        self, key: str, default: int | None = None, least: int = 1, most: int | None = None
    ) -> int:
        """The integer under a key, at least `least` (0 or 1) and at most `most` (None: any).
        Otherwise raises CheckpointError."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"must be a positive integer{'' if least else ' or 0'}", value)
        if most is not None and value > most:
            raise self.error(key, f"must be at most {most}", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """The positive number under a key, at most LARGEST. Otherwise raises CheckpointError."""
        value = self.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= LARGEST:  # Python reads NaN and Infinity in JSON
            raise self.error(key, "must be a positive number", value)
        return float(value)

    def text(self, key: str, default: str = "") -> str:
        """The text under a key. Raises CheckpointError if it is none."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "must be a text", value)
        return value

    def array(self, key: str) -> list[Any]:
        """The list under a key; empty if there is none. Raises CheckpointError if it is no list."""
        value = self.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, "must be a list", value)
        return value

    def error(self, key: str, why: str, value: Any) -> CheckpointError:
        """Make an error that names the file, the key, its value and the reason. Does not raise."""
        return CheckpointError(f"{self.where}: {key} = {shortened(value)} {why}")


def shortened(value: object) -> str:
    """The value's repr, cut to at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
