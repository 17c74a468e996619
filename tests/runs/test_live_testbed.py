"""The embedded model in a run, on the wall clock."""

import pytest

pytest.importorskip("torch")

from headway.core.cost.gathering import UNPADDED
from headway.core.cost.step_cost import Rounding
from headway.core.lane import Lane
from headway.core.request import Finish
from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.decoder import LARGE, SMALL
from headway.executor.torch.memory.memory_plan import GATHER_BUDGET
from headway.runs.live_testbed import load_testbed
from headway.runs.run import Run
from headway.strategies.strategy import SLOTS, demo_strategies
from headway.traffic.prompts import Prompts
from headway.traffic.workload import with_prompts


@pytest.mark.parametrize("cached, rounding", [(0, LARGE), (1 << 30, SMALL)])
def test_a_testbed_knows_how_its_executor_rounds_tokens(cached, rounding, monkeypatch):
    monkeypatch.setattr("headway.executor.torch.decoder.CACHED", cached)
    monkeypatch.setattr("headway.executor.torch.layers.linear.kernels", lambda: None)
    assert load_testbed(None).rounding == rounding != Rounding()


def test_a_testbed_knows_how_its_executor_pads(monkeypatch):
    if kernels() is not None:
        assert load_testbed(None).gathering is UNPADDED
    monkeypatch.setattr("headway.executor.torch.attention.choose.kernels", lambda: None)
    testbed = load_testbed(None)
    cache = testbed.executor.executor.cache
    assert testbed.gathering is cache.gathering and testbed.gathering.block == testbed.block_size
    pair = 2 * cache.keys[0][: testbed.block_size].nbytes
    assert (
        testbed.gathering.at_once * pair
        <= GATHER_BUDGET["cpu"]
        < (testbed.gathering.at_once + 1) * pair
    )


def test_every_strategy_completes_all_answers():
    testbed = load_testbed(None)
    assert testbed.model == "headway-tiny (embedded)" and len(testbed.text) > 100_000
    assert testbed.num_blocks >= SLOTS * testbed.context // testbed.block_size
    prompts = Prompts(testbed.text, testbed.block_size, seed=0)
    asks = [RequestSpec(0, "chat", 20 + 7 * i, 1 + i) for i in range(5)]
    for strategy in demo_strategies([Lane("chat")], TokenCost(1.0, 1.0), testbed.context):
        outcome = Run(
            testbed, strategy.policies, [Lane("chat")], with_prompts(asks, prompts)
        ).serve()
        assert {row.finish for row in outcome.requests} == {Finish.LENGTH}
        assert sorted(row.generated for row in outcome.requests) == [1, 2, 3, 4, 5]
