"""The snapshot of an engine that everyone outside reads (Load): one LaneLoad for each lane.

Both are named tuples because they are made after each step and for each request.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headway.core.lane import Lane
from headway.core.request import NEVER


class LaneLoad(NamedTuple):
    """What waits and runs in one lane."""

    lane: Lane
    waiting: int  # requests, relegated ones included
    tokens: int  # prompt tokens that wait
    drain: float = 0.0  # prompt tokens that start per second while some wait; 0: not known yet
    oldest: int = NEVER  # when the first request in line arrived; it may have been preempted
    running: int = 0  # sequences
    batch: int = 0  # sequences that ran when the latest step was built, ended or not
    blocks: int = 0  # that its sequences use; a shared block counts for each of them
    capacity: int = NEVER  # tokens that one of its requests may ever hold
    relegated: int = 0  # waiting requests that can no longer keep their budget
    relegated_tokens: int = 0  # prompt tokens of these requests
    # The lane's place among all lanes: lower ranks start first, equal ones side by side.
    rank: int = 0
    relegated_rank: int = 1  # of its relegated requests
    # Nanoseconds from a request's arrival to when its first token is due, if requests of equal rank
    # go by deadline; 0: they do not.
    due: int = 0
    # Nanoseconds from eta_at to the first token of a request that arrives then with eta_prompt
    # tokens, the lane's median prompt. Predicted once in many steps. NEVER: not known.
    eta: int = NEVER
    eta_prompt: int = 0
    eta_at: int = 0
    eta_tokens: int = 0  # prompt tokens that waited at eta_at, as Load.tokens_in_time
    slots: int = NEVER  # sequences that may run at once, at present
    window: int = NEVER  # nanoseconds that its oldest may be held, at present; NEVER: no window


class Load(NamedTuple):
    """The snapshot published after each step, for admission, routers and dashboards."""

    now: int = 0
    step: int = 0
    lanes: Mapping[str, LaneLoad] = {}
    running: int = 0
    free_blocks: int = 0
    num_blocks: int = 0
    block_size: int = 1
    capacity: int = 0  # tokens that one request may ever hold
    prefill: int = 0  # nanoseconds from start to first token, per prompt token; 0: not known
    drift: int = 0  # measured over predicted step time, in thousandths; 0: no cost model
    closing: bool = False
    preemptions: int = 0  # so far
    version: int = 0  # number of the configuration in force; 0: it has none
    slots: int = 0  # sequences that may run at once; 0: slots are not filled one by one
    begins: int = 0  # when another step could begin; `now` if it is not known how long steps take

    @property
    def tokens_in_time(self) -> int:
        """Prompt tokens that wait in lanes with a budget, and are not relegated."""
        lines = [each for each in self.lanes.values() if each.lane.budget.is_timed]
        return sum([each.tokens - each.relegated_tokens for each in lines])
