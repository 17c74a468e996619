"""Where each request's time went: stages sum to its time and name the rule it waited under."""

import pytest
from hypothesis import event, given, settings

from headway.core.accounts.accounts import Accounts, Flight
from headway.core.accounts.request_time import Stage
from headway.core.accounts.rules import Rule
from headway.core.accounts.stages import LaneWork
from headway.core.batch import Output
from headway.core.commands import Add, Cancel
from headway.core.lane import Budget, Lane, Share
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.memory import Ahead
from headway.core.policies.mix import Alternate, PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.policies.relegate import Hopeless
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate
from tests.traces import BLOCK, COST, MS, ask, cases, make, spy
from tests.traces import run as run_case

ONE = (Lane(),)


def explained(requests, policies, blocks=64, lanes=ONE, more=(), cost=None, depth=1):
    """Each request's stages in milliseconds and its RequestStages, by id. A step takes 10 ms plus
    1 ms a token."""
    known = {"cost": cost} if cost else {}
    scheduler = Scheduler(Settings(blocks, BLOCK, lanes, policies, depth=depth, **known))
    scheduler.accounts = Accounts(scheduler.roster)
    timed = sorted([*arrivals(requests), *more], key=lambda pair: pair[0])
    simulate(scheduler, timed, COST, spy(blocks))
    rows = {row.id: row for row in scheduler.ledger.requests}
    found = {each.id: each for each in scheduler.accounts.take()}
    for id, each in found.items():
        assert each.total == rows[id].finished - each.taken_in
    stages = {id: {name: ns / MS for name, ns in each.stages} for id, each in found.items()}
    return stages, found


@pytest.mark.no_cover
@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_stages_of_every_request_sum_to_its_time(case):
    scheduler = run_case(case).scheduler
    rows = {row.id: row for row in scheduler.ledger.requests}
    found = scheduler.accounts.take()
    assert {each.id for each in found} == {
        row.id for row in rows.values() if row.finish is not Finish.REFUSED
    } or any(row.finish is Finish.REFUSED for row in rows.values())
    for each in found:
        row, stages = rows[each.id], dict(each.stages)
        assert each.total == row.finished - each.taken_in
        assert min(stages.values(), default=1) > 0, "no stage is negative"
        own = stages.get("prefill.own", 0) + stages.get("decode.own", 0)
        assert own == row.nanoseconds
        assert "preempted" not in stages or row.preemptions
        for name in stages:
            event(name)


def test_in_a_lull_each_request_stays_under_the_rule_that_it_waited_under():
    """Memory suffices for one of 20 requests. Sixteen are tried; the others wait behind them."""
    asks = [ask(f"r{i}", (i,) * 4, 36, expected=36) for i in range(20)]
    stages, _ = explained(asks, Policies(Continuous(20), memory=Ahead()), blocks=64 // BLOCK)
    own = [{each for each in stages[f"r{i}"] if "queue" in each} for i in (1, 19)]
    assert own == [{"queue.blocks"}, {"queue.blocks", "queue.order"}]
    assert stages["r19"]["queue.order"] > 200


def test_a_request_refused_by_the_memory_forecast_waits_for_blocks():
    """Also in steps that try no request. Two requests at once would come to 80 tokens of 64."""
    asks = [ask(f"r{i}", (i,) * 4, 36, expected=36) for i in range(2)]
    stages, _ = explained(asks, Policies(Continuous(2), memory=Ahead()), blocks=64 // BLOCK)
    assert {each for each in stages["r1"] if "queue" in each} == {"queue.blocks"}
    assert stages["r1"]["queue.blocks"] > 100


def test_a_lone_request_is_charged_only_its_own_prefill_and_decode():
    stages, found = explained([ask("a", 4, 3)], Policies(Continuous(2)))
    assert stages["a"] == {"prefill.own": 14, "decode.own": 22}
    assert found["a"].before == () and found["a"].taken_in == 0


def test_a_request_waits_for_a_slot_while_others_run():
    stages, found = explained([ask("a", 4, 3), ask("b", (7,) * 4, 1)], Policies(Continuous(1)))
    assert stages["b"] == {"queue.slots": 36, "prefill.own": 14}
    assert found["b"].before == (LaneWork("default", 3, 6),)


def test_the_rows_of_a_step_share_its_time():
    stages, _ = explained([ask("a", 4, 2), ask("b", (7,) * 4, 2)], Policies(Continuous(2)))
    assert stages["a"] == {
        "prefill.own": 9,
        "prefill.others": 9,
        "decode.own": 6,
        "decode.others": 6,
    }


def test_a_request_waits_for_its_window_or_for_the_running_group():
    requests = [ask("a", 4, 2), ask("b", (7,) * 4, 1, arrived=60 * MS)]
    stages, _ = explained(requests, Policies(Dynamic(2, 50 * MS)))
    assert stages["a"]["queue.window"] == 50
    # It came at 60 ms and is taken in at 64, when the first step is back; the second takes 11 ms.
    assert stages["b"]["queue.group"] == 11 and "queue.window" not in stages["b"]


def test_an_ended_member_of_a_group_answered_together_is_held():
    requests = [ask("a", 4, 1), ask("b", (7,) * 4, 3)]
    stages, _ = explained(requests, Policies(Static(2, together=True)))
    assert stages["a"]["held"] == 24 and "held" not in stages["b"]


def test_a_full_step_keeps_the_next_prompt_waiting():
    policies = Policies(Continuous(4), chunk=Fixed(4), step_tokens=8)
    stages, _ = explained([ask("a", 12, 1), ask("b", (7,) * 4, 1)], policies)
    assert stages["b"]["queue.step"] == 3 * 14


def test_a_request_of_a_lane_at_its_slot_limit_waits_for_its_lane():
    lanes = (Lane("chat", slots=Share(0, 1)), Lane("bulk"))
    requests = [ask("a", 4, 3, lane="chat"), ask("b", (7,) * 4, 1, lane="chat")]
    requests.append(ask("c", (8,) * 4, 3, lane="bulk"))
    stages, found = explained(requests, Policies(Continuous(4)), lanes=lanes)
    assert stages["b"]["queue.lane"] == 18 + 12 + 12 and not any("queue" in s for s in stages["c"])
    assert found["b"].before == (LaneWork("chat", 3, 6), LaneWork("bulk", 3, 6))


def test_a_request_of_a_lane_at_its_block_limit_waits_for_its_lane():
    lanes = (Lane("chat", blocks=Share(0, 2)), Lane("bulk"))
    requests = [ask("a", 5, 3, lane="chat"), ask("b", (7,) * 5, 1, lane="chat")]
    stages, _ = explained(requests, Policies(Continuous(4)), lanes=lanes)
    assert stages["b"] == {"queue.lane": 15 + 11 + 11, "prefill.own": 15}


def test_a_step_that_fills_the_last_slot_still_charges_a_lane_at_its_limit():
    lanes = (Lane("chat", slots=Share(0, 1)), Lane("bulk"))
    requests = [ask(id, (i,) * 4, 3, lane="chat") for i, id in enumerate("ab")]
    requests.append(ask("c", (8,) * 4, 3, lane="bulk"))
    stages, _ = explained(requests, Policies(Continuous(2)), lanes=lanes)
    assert stages["b"]["queue.lane"] == 18


def test_a_request_whose_victims_would_free_too_few_blocks_waits_for_a_slot():
    """The lane without a budget keeps one of its two slots."""
    lanes = (Lane("bulk", slots=Share(1)), Lane("chat", Budget(ttft=10_000 * MS)))
    requests = [ask(id, (i,) * 4, 12, lane="bulk") for i, id in enumerate("ab")]
    requests.append(ask("c", (9,) * 13, 1, arrived=5 * MS, lane="chat"))
    policies = Policies(Continuous(2), preempt=ByLane())
    stages, _ = explained(requests, policies, blocks=4, lanes=lanes)
    assert stages["c"]["queue.slots"] > 0


def test_a_request_that_lacks_blocks_waits_for_blocks():
    requests = [ask("a", 12, 4), ask("b", (7,) * 12, 1), ask("c", (8,) * 12, 1)]
    stages, _ = explained(requests, Policies(Continuous(4)), blocks=4)
    assert stages["b"]["queue.blocks"] == 22 + 11 * 3 and stages["c"]["queue.blocks"] > 0


def test_further_choices_of_a_prompt_wait_for_the_prefix_of_the_first():
    requests = [ask("a", 4, 2), ask("b", 4, 2, follows="a")]
    stages, _ = explained(requests, Policies(Continuous(4)))
    assert stages["b"]["queue.prefix"] == 14


def test_a_step_with_only_decodes_keeps_the_next_prompt_waiting():
    asks = [ask("r0", (0,) * 4, 6), ask("r1", (1,) * 4, 2, arrived=5 * MS)]
    stages, _ = explained(asks, Policies(Continuous(2), mix=Alternate()))
    assert {each: time for each, time in stages["r1"].items() if "queue" in each} == {
        "queue.step": 11
    }


def test_a_request_that_joins_behind_a_step_in_flight_is_charged_it_as_that_of_others():
    """It waits for the other's step of 11 ms, and then shares one of 15 with it."""
    asks = [ask("r0", (0,) * 4, 6), ask("r1", (1,) * 4, 2, arrived=5 * MS)]
    stages, _ = explained(asks, Policies(Continuous(2)), depth=2)
    assert stages["r1"]["prefill.own"] == 12 and stages["r1"]["prefill.others"] == 11 + 3


def test_steps_with_only_prompts_defer_decodes():
    requests = [ask("a", 4, 9), ask("b", (7,) * 4, 2, arrived=20 * MS)]
    stages, _ = explained(requests, Policies(Continuous(4), mix=PrefillFirst()))
    assert stages["a"]["deferred"] == 14 and "deferred" not in stages["b"]


def test_each_run_deducts_only_its_own_deferred_time():
    """Two later prompts leave a out of one step each: one before a is preempted and one after."""
    scheduler = make(8, Policies(Continuous(4), mix=PrefillFirst()))
    accounts = scheduler.accounts = Accounts(scheduler.roster)
    scheduler.apply([Add(ask("a", 4, 9))], 0)
    a = scheduler.roster.by_id["a"]
    for end, prompt in ((10, ()), (30, (7,) * 4), (50, (8,) * 4)):
        if prompt:
            scheduler.apply([Add(ask(f"r{end}", prompt, 1))], end - 20)
        batch = scheduler.schedule(end - 20 if prompt else 0)
        scheduler.commit(batch, Output(((9,),) * len(batch.rows)), end)
        if end == 30:
            accounts._turn(a, Stage.PREEMPTED)
            accounts._turn(a, Stage.RUN)
    scheduler.apply([Cancel("a")], 50)
    stages = {each.id: dict(each.stages) for each in accounts.take()}
    assert stages["a"] == {"prefill.own": 10, "deferred": 40}


def test_a_preempted_request_is_charged_its_wait_and_its_recomputation():
    requests = [ask("a", (5,) * 8, 14), ask("b", (6,) * 8, 14)]
    stages, _ = explained(requests, Policies(Continuous(4)), blocks=6)
    assert stages["b"]["preempted"] > 0 and "preempted" not in stages["a"]
    assert stages["b"]["prefill.own"] > 0, "and was computed again"


def test_a_relegated_request_waits_behind_requests_in_time():
    lanes = (Lane("chat", Budget(ttft=30 * MS)),)
    policies = Policies(Continuous(1), relegate=Hopeless())
    requests = [ask(f"r{i}", (i,) * 4, 6, lane="chat") for i in range(3)]
    stages, found = explained(requests, policies, lanes=lanes, cost=COST)
    assert stages["r2"]["queue.relegated"] > 0 and stages["r2"]["queue.slots"] > 0
    assert found["r2"].before == (LaneWork("chat", 12, 18),), "of both, until its own first step"


def test_a_cancelled_waiting_request_is_charged_until_its_step_ends():
    more = [(20 * MS, Cancel("b"))]
    requests = [ask("a", 4, 9), ask("b", (7,) * 4, 1)]
    stages, _ = explained(requests, Policies(Continuous(1)), more=more)
    assert stages["b"] == {"queue.slots": 25}, "until the step's end"


def test_each_rule_has_a_stage_of_its_own():
    assert len({rule.stage for rule in Rule}) == len(Rule)
    assert Rule.LANE.stage == "queue.lane"


def preempted():
    """The accounts of a preempted request, and its sequence."""
    scheduler = make(8)
    accounts = scheduler.accounts = Accounts(scheduler.roster)
    scheduler.apply([Add(ask("a", 4, 3))], 0)
    a = scheduler.roster.by_id["a"]
    accounts._turn(a, Stage.PREEMPTED)
    return accounts, a


def test_late_events_do_not_change_the_stage_of_a_preempted_or_ended_request():
    accounts, a = preempted()
    accounts.moved([a])
    assert accounts._open[a].stage is Stage.PREEMPTED, "though it was relegated, too"
    accounts._flights += [Flight(0, [a]), Flight(0, [a])]
    accounts.came_back(5, 5)
    accounts.close(a)
    accounts.came_back(9, 4)
    assert accounts.take()[0].stages == (("preempted", 5),)


def test_a_step_that_comes_back_defers_no_preempted_request():
    accounts, a = preempted()
    accounts._flights.append(Flight(0, [a]))
    accounts.came_back(5, 5)
    assert accounts._open[a].left_out == 0


def test_a_scheduler_keeps_no_accounts_unless_asked():
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 4, 3)), Cancel("a")], 0)
    assert scheduler.accounts.take() == []
