"""Durations as an operator writes them: 300ms, 2s, 1h. All but 0 need a unit.

A window may also be a range, `{between: [5ms, 50ms]}`, within which it follows the load.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from headway.core.request import NEVER
from headway.errors import SettingError

SECOND = 1_000_000_000  # nanoseconds
UNITS = {
    "h": 3_600 * SECOND,
    "m": 60 * SECOND,
    "s": SECOND,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
NONE = "none"
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*")


def parse_duration(value: Any) -> int:
    """Parse a written duration into nanoseconds; NEVER for `none` or null. Raises SettingError."""
    if value is None or value == NONE:
        return NEVER
    found = None if isinstance(value, bool) else _WRITTEN.fullmatch(_plain(value))
    if found is None or (found[2] or "s") not in UNITS:
        raise SettingError(
            f"{value!r} is not a time; write a number and its unit, such as 300ms, 2s or 5m"
        )
    if not found[2] and Decimal(found[1]):
        raise SettingError(f"{value!r} has no unit; write {found[1]}ms, {found[1]}s or {found[1]}m")
    time = round(Decimal(found[1]) * UNITS[found[2] or "s"])
    if time >= NEVER:
        raise SettingError(f"{value!r} is longer than three centuries; write {NONE} for no limit")
    return time


def _plain(value: Any) -> str:
    """The value as text. A number is written without an exponent, which the pattern rejects."""
    return f"{Decimal(str(value)):f}" if isinstance(value, int | float) else str(value)


def format_duration(time: int) -> str:
    """Format a duration for parse_duration(), in the largest unit that gives a whole number."""
    if time == NEVER:
        return NONE
    unit = next(name for name, size in UNITS.items() if time % size == 0)
    return f"{time // UNITS[unit]}{unit}" if time else "0s"


DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "string",
            "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*(h|m|s|ms|us|ns)|0+(\.0+)?)\s*$",
        },
        {"enum": [NONE, None]},
        {"enum": [0]},
    ]
}
Duration = Annotated[
    int,  # nanoseconds
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(DURATION_SCHEMA),
]
Limit = Annotated[Duration, Field(gt=0)]


@dataclass(frozen=True, slots=True)
class Between:
    """A window that follows the load between two durations, in nanoseconds."""

    low: int
    high: int


def parse_window(value: Any) -> int | Between:
    """Parse a window into nanoseconds, or a range of them. Raises SettingError."""
    if not isinstance(value, dict):
        return parse_duration(value)
    ends = value.get("between")
    if [*value] != ["between"] or not isinstance(ends, list | tuple) or len(ends) != 2:
        raise SettingError("write a time, or {between: [5ms, 50ms]}")
    low, high = (parse_duration(each) for each in ends)
    if NEVER in (low, high) or low > high:
        raise SettingError(
            f"between {format_duration(low)} and {format_duration(high)}: the first must not "
            "exceed the second, and both are times"
        )
    return Between(low, high)


def format_window(window: int | Between) -> Any:
    """Format a window as in a file."""
    if isinstance(window, Between):
        return {"between": [format_duration(window.low), format_duration(window.high)]}
    return format_duration(window)


def longest(window: int | Between) -> int:
    """The longest that the window may be, in nanoseconds."""
    return window.high if isinstance(window, Between) else window


def shortest(window: int | Between) -> int:
    """The shortest that the window may be, in nanoseconds."""
    return window.low if isinstance(window, Between) else window


_RANGE = {
    "type": "object",
    "properties": {
        "between": {"type": "array", "items": DURATION_SCHEMA, "minItems": 2, "maxItems": 2}
    },
    "required": ["between"],
    "additionalProperties": False,
}
Window = Annotated[
    int | Between,
    BeforeValidator(parse_window),
    PlainSerializer(format_window),
    WithJsonSchema({"anyOf": [*DURATION_SCHEMA["anyOf"], _RANGE]}),
]
