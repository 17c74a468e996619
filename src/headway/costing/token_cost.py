"""What a request asks of the machine, and what that costs."""

from collections.abc import Iterable, Sequence
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
    cut: int = 0  # tokens that it was longer, before it was cut to the context


@dataclass(frozen=True, slots=True)
class Cut:
    """What the context has taken from requests that are longer."""

    requests: int = 0
    share: float = 0.0  # of the tokens of all requests, prompts and answers, that are not asked for


def cut(asks: Sequence[Ask]) -> Cut:
    lost = sum(ask.cut for ask in asks)
    kept = sum(ask.prompt + ask.answer for ask in asks)
    return Cut(sum(ask.cut > 0 for ask in asks), lost / (lost + kept) if lost else 0.0)


@dataclass(frozen=True, slots=True)
class Price:
    """Nanoseconds of device time at full batches, as measured on this machine."""

    prompt: float  # per token
    answer: float  # per token

    def of(self, asks: Iterable[Ask]) -> float:
        return sum(self.prompt * ask.prompt + self.answer * ask.answer for ask in asks)
