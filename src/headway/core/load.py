"""The snapshot of an engine that everyone outside reads (Load): one LaneLoad for each lane."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.lane import Lane
from headway.core.request import NEVER


@dataclass(frozen=True, slots=True)
class LaneLoad:
    lane: Lane
    waiting: int
    tokens: int  # prompt tokens that wait
    drain: float = 0.0  # prompt tokens that start per second, while some wait; 0: not known yet
    oldest: int = NEVER  # arrival of the first in line, who may be back from a preemption
    running: int = 0  # its sequences
    batch: int = 0  # so many ran when the latest step was built: who has ended in it, too
    blocks: int = 0  # that its sequences hold; one that several share counts for each


@dataclass(frozen=True, slots=True)
class Load:
    """The snapshot published after each step; what the door, a router or a dashboard reads."""

    now: int = 0
    step: int = 0
    lanes: Mapping[str, LaneLoad] = field(default_factory=dict)
    running: int = 0
    free_blocks: int = 0
    num_blocks: int = 0
    capacity: int = 0  # tokens that one request may ever hold
    prefill: int = 0  # nanoseconds from start to first token, per token of prompts; 0: not known
    by_priority: bool = False  # lanes take turns by priority; else all wait in one line
    drift: int = 0  # thousandths that steps take of what the cost model says; 0: there is none
    closing: bool = False
    preemptions: int = 0  # so far
