"""What a request specs of the machine, and what that costs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """A request before it has words: its times are still the trace's, its tokens scaled."""

    at: int  # nanoseconds
    lane: str
    prompt: int  # tokens
    answer: int  # tokens
    blocks: tuple[int, ...] = ()  # ids of its prompt's first blocks, which others may share
    block: int = 0  # tokens that one of them stands for, scaled
    cut: int = 0  # tokens that it was longer, before it was cut to the context


@dataclass(frozen=True, slots=True)
class Truncation:
    """What the context has taken from requests that are longer."""

    requests: int = 0
    share: float = 0.0  # of the tokens of all requests, prompts and answers, that are not asked for


def truncation(specs: Sequence[RequestSpec]) -> Truncation:
    lost = sum(spec.cut for spec in specs)
    kept = sum(spec.prompt + spec.answer for spec in specs)
    return Truncation(sum(spec.cut > 0 for spec in specs), lost / (lost + kept) if lost else 0.0)


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Nanoseconds of device time at full batches, as measured on this machine."""

    prompt: float  # per token
    answer: float  # per token

    def of(self, specs: Iterable[RequestSpec]) -> float:
        return sum(self.prompt * spec.prompt + self.answer * spec.answer for spec in specs)
