"""How much of the engine and of its waiting line an endpoint may have, from YAML.

chat:
  slots: {least: 2, most: 12}  # sequences that run at once; the least is never taken away
                               # or {between: [4, 12]}: the most follows the load
  blocks: {most: 400}          # KV blocks
  step_tokens: {least: 16, most: 256}  # tokens per step
  chunk: 128                   # prompt tokens per step
  max_waiting: 64              # requests; the next one is refused
  max_waiting_tokens: 20000    # prompt tokens
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from headway.core.lane import Lane, Share
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.yaml_values import known, mapping, whole, wholes

SHARES = {
    "slots": ("least", "most", "between"),
    "blocks": ("least", "most"),
    "step_tokens": ("least", "most"),
}
BOUNDS = ("chunk", "max_waiting", "max_waiting_tokens")
KEYS = (*SHARES, *BOUNDS)


@dataclass(frozen=True, slots=True)
class Place:
    """The fields of an endpoint's lane that are not its budget. core.lane.Lane defines them."""

    slots: Share = Share()
    blocks: Share = Share()
    step_tokens: Share = Share()
    chunk: int = NEVER
    max_waiting: int = Lane().max_waiting
    max_waiting_tokens: int = NEVER


def read_place(fields: Mapping[str, Any], where: str) -> Place:
    """Read the fields of an endpoint named in KEYS. SettingError names the place in the file."""
    given: dict[str, Any] = {
        name: _share(fields[name], ends, f"{where}: {name}")
        for name, ends in SHARES.items()
        if name in fields
    }
    for name in BOUNDS:
        if name in fields:
            given[name] = whole(fields[name], f"{where}: {name}", 1)
    return Place(**given)


def _share(value: Any, allowed: Collection[str], where: str) -> Share:
    given = mapping(value, where)
    known(given, allowed, where)
    ends = {
        name: whole(each, f"{where}: {name}") for name, each in given.items() if name != "between"
    }
    if "between" in given:
        if "most" in given:
            raise SettingError(f"{where}: say either most or between")
        both = wholes(given["between"], f"{where}: between")
        if len(both) != 2:
            raise SettingError(f"{where}: between is two numbers, not {len(both)}")
        ends["low"], ends["most"] = both
    try:
        return Share(**ends)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error
