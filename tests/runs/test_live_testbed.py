"""The embedded model behind a run, on the wall's clock."""

import pytest

pytest.importorskip("torch")

from headway.core.cost.step_cost import Rounding
from headway.core.lane import Lane
from headway.core.request import Finish
from headway.costing.token_cost import Ask, Price
from headway.executor.torch.decoder import LARGE, SMALL
from headway.executor.torch.memory.memory_plan import GATHER_BUDGET
from headway.runs.live_testbed import live_rig
from headway.runs.run import Run
from headway.strategies.strategy import SLOTS, strategies
from headway.traffic.workload import Prompts, worded


@pytest.mark.parametrize("cached, rounding", [(0, LARGE), (1 << 30, SMALL)])
def test_a_rig_knows_how_its_executor_rounds_tokens(cached, rounding, monkeypatch):
    monkeypatch.setattr("headway.executor.torch.decoder.CACHED", cached)
    assert live_rig(None).rounding == rounding != Rounding()


def test_a_rig_knows_how_its_executor_pads():
    rig = live_rig(None)
    cache = rig.executor.executor.cache
    assert rig.gathering is cache.gathering and rig.gathering.block == rig.block_size
    pair = 2 * cache.keys[0][: rig.block_size].nbytes
    assert rig.gathering.at_once * pair <= GATHER_BUDGET["cpu"] < (rig.gathering.at_once + 1) * pair


def test_every_strategy_answers_in_full():
    rig = live_rig(None)
    assert rig.model == "headway-tiny (embedded)" and len(rig.text) > 100_000
    assert rig.num_blocks >= SLOTS * rig.context // rig.block_size
    prompts = Prompts(rig.text, rig.block_size, seed=0)
    asks = [Ask(0, "chat", 20 + 7 * i, 1 + i) for i in range(5)]
    for strategy in strategies([Lane("chat")], Price(1.0, 1.0), rig.context):
        outcome = Run(rig, strategy.policies, [Lane("chat")], worded(asks, prompts)).serve()
        assert {row.finish for row in outcome.requests} == {Finish.LENGTH}
        assert sorted(row.generated for row in outcome.requests) == [1, 2, 3, 4, 5]
