"""What a request asks of the machine, and what that costs."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """A request before it has words: its times are still the trace's, its tokens scaled."""

    at: int  # nanoseconds
    lane: str
    prompt: int  # tokens
    answer: int  # tokens
    blocks: tuple[int, ...] = ()  # ids of its prompt's first blocks, which others may share
    block: int = 0  # tokens that one of them stands for, scaled


@dataclass(frozen=True, slots=True)
class Price:
    """Nanoseconds of device time at full batches, as measured on this machine."""

    prompt: float  # per token
    answer: float  # per token

    def of(self, asks: Iterable[Ask]) -> float:
        return sum(self.prompt * ask.prompt + self.answer * ask.answer for ask in asks)
