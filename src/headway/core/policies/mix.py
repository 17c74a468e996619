"""May prefill and decode share a step? Asked once per step."""

from dataclasses import dataclass
from typing import Protocol

from headway.core.view import View


@dataclass(frozen=True, slots=True)
class Turn:
    """What a step may hold. Prefill: two or more tokens to compute, or joining. Decode: one."""

    prefill: bool
    decode: bool


BOTH = (Turn(prefill=True, decode=True),)
PREFILL, DECODE = Turn(prefill=True, decode=False), Turn(prefill=False, decode=True)


class Mix(Protocol):
    def turns(self, view: View) -> tuple[Turn, ...]:
        """In order of preference: the first that finds work becomes the step."""
        ...


@dataclass(frozen=True, slots=True)
class Mixed:
    def turns(self, view: View) -> tuple[Turn, ...]:
        return BOTH


@dataclass(frozen=True, slots=True)
class PrefillFirst:
    """Early first tokens, at the price of stalls in every answer under way."""

    def turns(self, view: View) -> tuple[Turn, ...]:
        return PREFILL, DECODE


@dataclass(frozen=True, slots=True)
class Alternate:
    """As PrefillFirst, but no stall is longer than one step."""

    def turns(self, view: View) -> tuple[Turn, ...]:
        return (DECODE, PREFILL) if view.prefilled else (PREFILL, DECODE)


MIXES: dict[str, Mix] = {  # as operators name them
    "mixed": Mixed(),
    "prefill-first": PrefillFirst(),
    "alternate": Alternate(),
}
