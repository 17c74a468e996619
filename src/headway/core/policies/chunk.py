"""How many prompt tokens per step? Asked once per step."""

from dataclasses import dataclass
from typing import Protocol

from headway.core.request import NEVER
from headway.core.view import View
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Allowance:
    tokens: int  # of prompts, over the whole step
    split: bool  # whether a prompt may get less than all of its tokens


class Chunk(Protocol):
    def allow(self, view: View) -> Allowance: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Prompts are not split: one starts while anything is left of the step, and may overrun it."""

    def allow(self, view: View) -> Allowance:
        return Allowance(NEVER, split=False)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Sarathi's chunked prefill: prompts take at most so many tokens of a step."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"a chunk must be 1 token or more, not {self.size}")

    def allow(self, view: View) -> Allowance:
        return Allowance(self.size, split=True)
