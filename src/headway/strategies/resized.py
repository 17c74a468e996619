"""Policies with other slots or another chunk, in which the rest of a step keeps its room."""

from dataclasses import replace
from typing import Any

from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies


def with_slots(policies: Policies, slots: int) -> Policies:
    """The policies with this many slots, or members of a group. A step keeps its tokens for
    prompts, and a group those for each member. Raises SettingError if the join policy forbids it.
    """
    join: Any = policies.join  # every join policy has a size
    if isinstance(join, Continuous):
        step_tokens = slots + max(1, policies.step_tokens - join.size)
    else:
        step_tokens = slots * max(1, policies.step_tokens // join.size)
    return replace(policies, join=replace(join, size=slots), step_tokens=step_tokens)


def with_chunk(policies: Policies, tokens: int) -> Policies:
    """The policies with chunks of this many prompt tokens. A step keeps its tokens for decoding, or
    has one for each slot if prompts had no fixed chunk."""
    chunk, step_tokens = policies.chunk, policies.step_tokens
    if isinstance(chunk, Fixed):
        step_tokens = max(policies.slots, tokens + max(0, step_tokens - chunk.size))
    else:
        step_tokens = max(step_tokens, tokens + policies.slots)
    return replace(policies, chunk=Fixed(tokens), step_tokens=step_tokens)
