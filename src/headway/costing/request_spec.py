"""Requests that have no prompts yet, and how much of them the context cuts off."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """A request without a prompt yet: when it arrives, its lane, and its token counts."""

    at: int  # nanoseconds
    lane: str
    prompt: int  # tokens
    answer: int  # tokens
    blocks: tuple[int, ...] = ()  # ids of the prompt's first blocks, which requests may share
    block: int = 0  # tokens of one such block, after scaling
    cut: int = 0  # tokens that were cut off to fit the context
    tenant: str = ""  # the tenant that sends it
    supersede: str = ""  # of a tenant's requests with the same value, only the latest is wanted


@dataclass(frozen=True, slots=True)
class Truncation:
    """How much was cut off requests longer than the context."""

    requests: int = 0
    share: float = 0.0  # of all tokens, prompts and answers, that was cut off


def truncation(specs: Sequence[RequestSpec]) -> Truncation:
    """How many requests were cut to fit the context, and the share of all tokens that was cut."""
    lost = sum(spec.cut for spec in specs)
    kept = sum(spec.prompt + spec.answer for spec in specs)
    return Truncation(sum(spec.cut > 0 for spec in specs), lost / (lost + kept) if lost else 0.0)
