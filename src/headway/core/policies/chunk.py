"""How many prompt tokens may a step compute? A Chunk answers, once per step."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from headway.core.request import NEVER
from headway.core.view import View
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Allowance:
    """The prompt tokens that a step may compute, and the time that it may take."""

    tokens: int  # at most, of all prompts
    split: bool  # whether a prompt may get only some of its tokens
    nanoseconds: int = NEVER  # that the step may take; rows that it must have may exceed it
    least: int = 0  # prompt tokens that it may compute whatever its time
    sure: float = 0.5  # share of the steps that are to take no longer than their nanoseconds
    # By this share, rows of later tiers may lengthen a step with prompts of requests in time.
    filler: float = inf

    @property
    def time(self) -> tuple[int, float, float]:
        """The arguments of a Sizer: nanoseconds, sure, filler."""
        return self.nanoseconds, self.sure, self.filler


WHOLE_PROMPTS = Allowance(NEVER, split=False)


# Nanoseconds that a step may take, by its number (1: the next one) and the time when it begins.
Ahead = Callable[[int, int], int]


def unlimited(step: int, now: int) -> int:
    """Each step may take any time."""
    return NEVER


class Chunk(Protocol):
    """How many prompt tokens a step may compute.

    A policy may also have a method `ahead(view) -> Ahead`: the time that it allows each of the next
    steps if every running sequence gets a token in each. A simulation then asks it less often.
    """

    def allow(self, view: View) -> Allowance:
        """The prompt tokens that the next step may compute, and whether it may split a prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A prompt is never split. It starts while any token of the step is left, and may exceed it."""

    def allow(self, view: View) -> Allowance:
        return WHOLE_PROMPTS

    def ahead(self, view: View) -> Ahead:
        return unlimited


@dataclass(frozen=True, slots=True)
class Fixed:
    """Chunked prefill: all prompts take at most `size` tokens of a step (Sarathi, 2023)."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"a chunk must be 1 token or more, not {self.size}")

    def allow(self, view: View) -> Allowance:
        return Allowance(self.size, split=True)

    def ahead(self, view: View) -> Ahead:
        return unlimited
