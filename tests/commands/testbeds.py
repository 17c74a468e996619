"""A testbed without a model: the fake executor's paged memory on a virtual clock."""

import pydoc_data.topics

from headway.core.cost.step_cost import StepCost
from headway.executor.fake import FakeExecutor
from headway.runs.shared_executor import SharedExecutor
from headway.runs.testbed import Testbed
from headway.sim.clock import VirtualClock
from headway.sim.executor import Filler, PricedExecutor

TEXT = [ord(letter) % 97 for letter in "".join(pydoc_data.topics.topics.values())]
COST = StepCost.of(3_000_000, per_token=100_000, per_pair=20)


def fake_testbed(real_memory=False, blocks=2_048, cost=COST, executor=None):
    """By default, every token is 0. real_memory: slower; the executor reads its paged memory."""
    clock = VirtualClock()
    inner = executor or (FakeExecutor(blocks, 16) if real_memory else Filler())
    return Testbed(
        model="fake",
        dtype="none",
        device="none",
        num_blocks=blocks,
        block_size=16,
        context=2_048,
        text=TEXT,
        executor=SharedExecutor(PricedExecutor(cost, clock, inner)),
        clock=clock,
    )
