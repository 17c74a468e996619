"""Sessions of several turns: each turn sends the whole conversation so far (Sessions, Turn).

sessions:
  turns: [2, 6]     # turns of a session: least, most; or one number
  think: 5          # mean seconds from an answer's end to the next turn, exponential
  prefix: 200       # tokens that every session of the lane begins with
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from headway.core.request import Request
from headway.errors import SettingError
from headway.yaml_values import known, mapping, number, whole, wholes

KEYS = ("turns", "think", "prefix")


@dataclass(frozen=True, slots=True)
class Turn:
    """A later turn of a session."""

    request: Request  # its prompt is only what the caller adds; `arrived` is ignored
    think: int  # nanoseconds after the end of the previous answer


@dataclass(frozen=True, slots=True)
class Sessions:
    """How the sessions of a lane continue after their first turn."""

    least: int = 1  # turns
    most: int = 1
    think: float = 0.0  # mean seconds
    prefix: int = 0  # tokens

    @property
    def is_single(self) -> bool:
        """Whether every session is a single request without a shared prefix."""
        return self.most == 1 and not self.prefix

    @property
    def words(self) -> str:
        """The sessions in words, for a report; empty: requests are single."""
        if self.is_single:
            return ""
        turns = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        shared = f", {self.prefix} shared tokens" if self.prefix else ""
        return f"sessions of {turns} turns, {self.think:g} s of thought{shared}"

    def further(self, draw: Random) -> int:
        """Draw how many turns follow the first."""
        return draw.randint(self.least, self.most) - 1

    def pause(self, draw: Random) -> int:
        """Draw the nanoseconds to think before a turn."""
        return round(draw.expovariate(1 / self.think) * 1e9) if self.think else 0


ALONE = Sessions()  # one value, so that it may be a default


def read_sessions(value: Any, where: str) -> Sessions:
    """Read the key `sessions` of a lane. SettingError names the place in the file."""
    fields: Mapping[str, Any] = mapping(value, where)
    known(fields, KEYS, where)
    turns = fields.get("turns", 1)
    least, *rest = wholes(turns if isinstance(turns, list) else [turns], f"{where}: turns")
    most = rest[0] if rest else least
    if len(rest) > 1 or most < least:
        raise SettingError(f"{where}: turns is a number, or [least, most], not {turns}")
    return Sessions(
        least,
        most,
        number(fields.get("think", 0), f"{where}: think"),
        whole(fields.get("prefix", 0), f"{where}: prefix"),
    )
