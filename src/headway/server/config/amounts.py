"""How much memory a model may take: a share of the free memory, or an amount."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from headway.errors import SettingError
from headway.server.config.durations import NONE

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
WHY = "is a share of the free memory, above 0 and at most 1, or an amount such as 4GiB"


@dataclass(frozen=True, slots=True)
class Memory:
    """A share or an amount of memory; the other one is 0."""

    share: float = 0.0  # of the memory that is free when the server starts
    amount: int = 0  # bytes

    def __str__(self) -> str:
        if self.share:
            return f"{self.share:g}"
        unit, size = next(each for each in reversed(UNITS.items()) if self.amount >= each[1])
        return f"{self.amount / size:.6g}{unit}"

    def of(self, free: int) -> int:
        """The memory in bytes, if `free` bytes are free."""
        return self.amount or int(self.share * free)


def _memory(value: Any) -> Memory | None:
    if value is None or isinstance(value, Memory):
        return value
    if value == NONE:
        return None
    if isinstance(value, str) and (found := AMOUNT.fullmatch(value.strip())):
        if (size := UNITS.get(found[2])) and (amount := int(float(found[1]) * size)) >= 1 << 20:
            return Memory(amount=amount)
        raise SettingError(f"{WHY}, in {', '.join(UNITS)}; not {value!r}")
    try:
        share = float(value) if not isinstance(value, bool) else 0.0
    except (TypeError, ValueError):
        share = 0.0
    if not 0 < share <= 1:
        raise SettingError(f"{WHY}; not {value!r}")
    return Memory(share)


MemoryField = Annotated[
    Memory | None,
    BeforeValidator(_memory),
    PlainSerializer(lambda memory: str(memory or NONE)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(MiB|GiB|TiB)$"},
                {"enum": [NONE, None]},
            ]
        }
    ),
]
