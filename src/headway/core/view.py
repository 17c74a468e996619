"""What policies may see of the scheduler (View). Everything outside the engine reads a Load."""

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from typing import NamedTuple

from headway.core.cost.estimates import Estimates
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Line
from headway.core.sequences.sequence import Sequence

NO_BLOCKS: Mapping[str, int] = Counter()
UNKNOWN = Estimates(StepCost())


class View(NamedTuple):
    """What policies read: references, not copies, valid only during the call it is made for. A
    named tuple, because one is made for each step."""

    now: int  # when the step can begin: once those in flight are back
    lines: tuple[Line, ...]  # in the order in which the lanes were configured
    running: Collection[Sequence] = ()  # in the order in which they are served
    closing: bool = False  # nothing more will arrive, at least for now
    prefilled: bool = False  # the last step had prompts
    last_victim: int = -1  # number of the sequence that was preempted last
    since_oldest: Seq[int] = (0, 0)  # of lanes with a budget, and without: fairness/turns.py
    estimates: Estimates = UNKNOWN  # the cost model with its drift, and what else was learned
    free_blocks: int = 0  # cached ones included
    num_blocks: int = 0
    block_size: int = 1
    step: int = 0  # steps scheduled so far
    shared: Collection[int] = ()  # blocks that several sequences use
    blocks_of_lane: Mapping[str, int] = NO_BLOCKS  # that its sequences use; a missing one uses none
    ahead: int = 0  # nanoseconds from the present to `now`, as far as can be foreseen
    finishing: int = 0  # running sequences whose last row is in flight: they leave their slots

    @property
    def waiting(self) -> int:
        return sum([len(line.waiting) + len(line.relegated) for line in self.lines])
