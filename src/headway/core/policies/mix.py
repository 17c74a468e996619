"""May prefill and decode share a step? A Mix answers, once per step."""

from dataclasses import dataclass
from typing import Protocol

from headway.core.view import View


@dataclass(frozen=True, slots=True)
class RowKinds:
    """Which sequences a step may compute: those with two or more tokens to go or that join now
    (prefill), those with one (decode), or both."""

    prefill: bool
    decode: bool


BOTH = (RowKinds(prefill=True, decode=True),)
NEITHER = RowKinds(prefill=False, decode=False)
PREFILL, DECODE = RowKinds(prefill=True, decode=False), RowKinds(prefill=False, decode=True)


class Mix(Protocol):
    """Which kinds of rows, prefill and decode, a step may mix."""

    def choices(self, view: View) -> tuple[RowKinds, ...]:
        """Kinds of rows in order of preference: the first that has work becomes the step."""
        ...


@dataclass(frozen=True, slots=True)
class Mixed:
    """Both, in every step."""

    def choices(self, view: View) -> tuple[RowKinds, ...]:
        return BOTH


@dataclass(frozen=True, slots=True)
class PrefillFirst:
    """Prompts first: first tokens come early, and running answers stall while one is computed."""

    def choices(self, view: View) -> tuple[RowKinds, ...]:
        return PREFILL, DECODE


@dataclass(frozen=True, slots=True)
class Alternate:
    """As PrefillFirst, but after each step with a prompt comes one that decodes."""

    def choices(self, view: View) -> tuple[RowKinds, ...]:
        return (DECODE, PREFILL) if view.prefilled else (PREFILL, DECODE)


MIXES: dict[str, Mix] = {  # as operators name them
    "mixed": Mixed(),
    "prefill-first": PrefillFirst(),
    "alternate": Alternate(),
}
