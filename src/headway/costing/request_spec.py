"""Requests before they have prompts, and what the context cuts off of them."""

from collections.abc import Sequence
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
    tenant: str = ""  # whose it is
    supersede: str = ""  # of a tenant's requests with the same, the latest is wanted


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
