"""The demo's three strategies, made from one set of budgets."""

from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.costing.token_cost import TokenCost
from headway.strategies.strategy import (
    OFFLINE_WINDOW,
    SLOTS,
    chunk_within_budgets,
    demo_strategies,
    windows_from_budgets,
)
from headway.traffic.endpoint import ENDPOINTS, LABELLING, VOICE, UnloadedLatency

MS = 1_000_000
PRICE = TokenCost(prompt=0.1 * MS, answer=0.3 * MS)


def lane(ttft, tpot):
    return Lane(f"{ttft}", Budget(ttft=ttft * MS, tpot=tpot * MS))


def test_budgets_are_multiples_of_the_unloaded_latency():
    alone = {"voice": UnloadedLatency(ttft=7 * MS, tpot=3 * MS)}
    assert VOICE.lane(alone).budget == Budget(ttft=21 * MS, tpot=15 * MS)
    assert LABELLING.lane(alone).budget == Budget() and LABELLING.is_offline
    assert [endpoint.priority for endpoint in ENDPOINTS] == [0, 1, 2, 3]


def test_the_three_demo_strategies_have_the_same_slots_and_the_same_order():
    made = demo_strategies([lane(20, 15)], PRICE, 2_048)
    assert [type(each.policies.join) for each in made] == [Static, Dynamic, Continuous]
    assert {each.policies.join.size for each in made} == {SLOTS}
    assert len({each.policies.order for each in made}) == 1
    static, dynamic, continuous = (each.policies for each in made)
    assert static.chunk == dynamic.chunk == Whole() and continuous.chunk == Fixed(64)
    assert static.step_tokens >= SLOTS * 2_048, "a group's prompts run in one step"


def test_a_window_is_a_share_of_its_lanes_budget():
    assert windows_from_budgets([lane(20, 15), lane(400, 30), Lane("bulk")]) == {
        "20": 5 * MS,
        "400": 100 * MS,
        "bulk": OFFLINE_WINDOW,
    }


def test_a_window_is_within_the_queue_and_e2e_limits_too():
    lanes = [Lane("a", Budget(queue=8 * MS)), Lane("b", Budget(ttft=80 * MS, e2e=40 * MS))]
    assert windows_from_budgets(lanes) == {"a": 2 * MS, "b": 10 * MS}


def test_a_chunk_beside_a_full_batch_fits_the_tightest_budget():
    assert chunk_within_budgets([lane(20, 15), lane(20, 99)], PRICE) == 64, (
        "15 - 16 x 0.3 leaves 102"
    )
    assert chunk_within_budgets([lane(20, 15), Lane("bulk")], TokenCost(0.01 * MS, 0.3 * MS)) == 512
    assert chunk_within_budgets([lane(20, 1)], PRICE) == 32, (
        "no time is left, but a chunk has at least one token"
    )


def test_a_strategys_settings_are_listed_in_full():
    static, dynamic, _ = demo_strategies([lane(20, 15)], PRICE, 2_048)
    join = static.settings["join"]
    assert (join["policy"], join["size"], join["buckets"]) == ("Static", SLOTS, ())
    assert join["together"] is False, "each caller gets its own tokens as they come"
    assert dynamic.settings["join"]["windows"] == {"20": 5 * MS}
    assert static.settings["step_tokens"] == SLOTS * 2_048
