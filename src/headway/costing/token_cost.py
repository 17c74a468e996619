"""Requests before they have prompts, and the device time that a token costs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """When a request arrives, in which lane, and how many tokens it has; it has no prompt yet."""

    at: int  # nanoseconds
    lane: str
    prompt: int  # tokens
    answer: int  # tokens
    blocks: tuple[int, ...] = ()  # ids of the prompt's first blocks, which requests may share
    block: int = 0  # tokens of one such block, after scaling
    cut: int = 0  # tokens that were cut off to fit the context


@dataclass(frozen=True, slots=True)
class Truncation:
    """What was cut off from requests that are longer than the context."""

    requests: int = 0
    share: float = 0.0  # of the tokens of all requests, prompts and answers, that was cut off


def truncation(specs: Sequence[RequestSpec]) -> Truncation:
    """How many requests were cut to fit the context, and the share of all tokens that was cut."""
    lost = sum(spec.cut for spec in specs)
    kept = sum(spec.prompt + spec.answer for spec in specs)
    return Truncation(sum(spec.cut > 0 for spec in specs), lost / (lost + kept) if lost else 0.0)


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Nanoseconds of device time per token at full batches, as measured on this machine."""

    prompt: float  # per token
    answer: float  # per token

    def of(self, specs: Iterable[RequestSpec]) -> float:
        """The device time of these requests together, in nanoseconds."""
        return sum(self.prompt * spec.prompt + self.answer * spec.answer for spec in specs)
