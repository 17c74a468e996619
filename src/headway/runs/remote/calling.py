"""How the callers of an endpoint behave (Calling), from YAML. Only a client can act on it.

chat:
  headers: {x-headway-lane: chat}   # of each request
  cancel: 3%                        # share of callers that leave before the end, drawn one by one
  sessions: {turns: [2, 6], think: 5, prefix: 200}  # see session.py
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.runs.remote.session import ALONE, Sessions, read_sessions
from headway.yaml_values import DECIMAL, mapping, number

KEYS = ("headers", "cancel", "sessions")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a header's name (RFC 9110)
FIXED = ("content-length", "transfer-encoding", "connection", "host")  # the client sets these
_PERCENT = re.compile(rf"\s*({DECIMAL})\s*%\s*")


@dataclass(frozen=True, slots=True)
class Calling:
    """How the callers of an endpoint behave."""

    headers: Mapping[str, str] = field(default_factory=dict)
    cancel: float = 0.0  # share of callers that leave before the end
    sessions: Sessions = ALONE

    def leaves_after(self, draw: Random, answer: int) -> int:
        """Draw the pieces of text after which a caller leaves, uniformly from 0 to all but one;
        NEVER: it stays. answer: tokens, most of which come as a piece each."""
        stays = draw.random() >= self.cancel
        after = draw.randrange(max(1, answer))
        return NEVER if stays else after


def read_calling(fields: Mapping[str, Any], where: str) -> Calling:
    """Read the fields of an endpoint named in KEYS. SettingError names the place in the file."""
    given = mapping(fields.get("headers", {}), f"{where}: headers")
    headers = {}
    for name, value in given.items():
        text = str(value)
        if not TOKEN.fullmatch(str(name)) or str(name).lower() in FIXED:
            raise SettingError(f"{where}: headers: {name!r} is no header that can be set")
        if not text.isascii() or not text.isprintable():
            raise SettingError(f"{where}: headers: {name} has a value that no header can have")
        headers[str(name)] = text
    sessions = read_sessions(fields.get("sessions", {}), f"{where}: sessions")
    return Calling(headers, share(fields.get("cancel", 0), f"{where}: cancel"), sessions)


def share(value: Any, where: str) -> float:
    """Read a share such as 3% or 0.03. SettingError if it is not from 0 to 1."""
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        value = number(float(match[1]), where) / 100
    found = number(value, where)
    if found > 1:
        raise SettingError(f"{where} is {found:g}; a share is from 0 to 1, such as 3%")
    return found
