"""Requests that wait behind the same new prefix compute it once."""

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.batch import Output, Want
from headway.core.commands import Add, Cancel
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.planning.prefixes import LEAST, MOST, Prefixes
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Static
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.request import Finish
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.core.view import View
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate
from tests.traces import BLOCK, MS, ask, make

COST = StepCost.of(10 * MS, per_token=MS)
SHARED = tuple(range(40))  # ten blocks
CHUNKED = Policies(Continuous(4), chunk=Fixed(16), step_tokens=20)


def sharing(id, own=1, most=2, **rest):
    """A request whose prompt begins with SHARED."""
    return ask(id, SHARED + (100 + ord(id[-1]),) * own, most, **rest)


def scheduler_of(policies, *lanes, blocks=200):
    return Scheduler(Settings(blocks, BLOCK, lanes or (Lane(),), policies, cost=COST))


def add(scheduler, *requests, now=0):
    scheduler.apply([Add(each) for each in requests], now)


def begin(scheduler, now=0):
    """Put the next step in flight. Returns its batch and its rows' tokens by request."""
    names = {s.number: s.request.id for s in scheduler.roster.by_id.values()}
    batch = scheduler.schedule(now)
    scheduler.check()
    return batch, {names[row.sequence]: len(row.tokens) for row in batch.rows}


def end(scheduler, batch, now=0, errors=None):
    outputs = tuple([(9,) if row.want is Want.LAST else () for row in batch.rows])
    events = scheduler.commit(batch, Output(outputs, errors=errors or {}), now)
    scheduler.check()
    return events


def step(scheduler, now=0):
    batch, tokens = begin(scheduler, now)
    end(scheduler, batch, now)
    return tokens


# -- a shared prefix is computed once


@pytest.mark.parametrize(
    "policies, steps",
    [
        # Whole prompts: the first prompt; then the others' own tokens.
        (
            Policies(Continuous(4), step_tokens=100),
            [{"a": 41}, {"a": 1, "b": 1, "c": 1}, {"b": 1, "c": 1}],
        ),
        # In chunks: the last chunk of the prefix has room for others, which do not need it yet.
        (
            CHUNKED,
            [{"a": 16}, {"a": 16}, {"a": 9}, {"a": 1, "b": 1, "c": 1}, {"b": 1, "c": 1}],
        ),
    ],
)
def test_waiting_requests_join_when_their_shared_prefix_is_computed(policies, steps):
    scheduler = scheduler_of(policies)
    add(scheduler, sharing("a"), sharing("b"), sharing("c"))
    assert [step(scheduler) for _ in steps] == steps
    assert [row.cached for row in scheduler.ledger.requests] == [0, 40, 40]
    assert [row.finish for row in scheduler.ledger.requests] == [Finish.LENGTH] * 3


def test_a_long_own_part_is_computed_while_others_wait_for_the_prefix_before_it():
    """Requests wait only for the shared prefix, not for the rest of the leader's prompt."""
    scheduler = scheduler_of(replace(CHUNKED, chunk=Fixed(20)))
    add(scheduler, sharing("a", own=50), sharing("b", own=3))
    assert [step(scheduler) for _ in range(2)] == [{"a": 20}, {"a": 20}]
    assert step(scheduler) == {"a": 20}, "the chunk is full"
    assert step(scheduler) == {"a": 20}
    assert step(scheduler) == {"a": 10, "b": 3}, "with all that they share"


def test_a_request_that_waited_for_a_leader_becomes_a_leader_itself():
    """b shares more with a than c does; d shares more with b."""
    scheduler = scheduler_of(Policies(Continuous(9), step_tokens=100))
    add(scheduler, ask("a", (*SHARED[:20], 1), 1), ask("b", (*SHARED, 2), 1))
    add(scheduler, ask("c", (*SHARED[:20], 3), 1), ask("d", (*SHARED, 4), 1))
    assert step(scheduler) == {"a": 21}
    assert step(scheduler) == {"b": 21, "c": 1}
    assert step(scheduler) == {"d": 1}


@settings(deadline=None)
@given(st.data())
def test_a_prefix_is_computed_once_whatever_the_arrivals_and_the_chunks(data):
    """At most one block of the prefix is computed again for each later request."""
    size = st.integers(1, 20)
    chunk = data.draw(st.one_of(st.none(), st.builds(Fixed, size)))
    policies = Policies(Continuous(data.draw(st.integers(1, 6))), step_tokens=64)
    policies = replace(policies, chunk=chunk) if chunk else policies
    count, shared = data.draw(st.integers(2, 8)), data.draw(st.integers(0, 40))
    requests = []
    for i in range(count):
        at = data.draw(st.integers(0, 200)) * MS
        own = (100 + i,) * data.draw(st.integers(1, 9))
        requests.append(ask(f"r{i}", SHARED[:shared] + own, data.draw(st.integers(1, 5)), at))
    scheduler = make(400, policies)
    requests.sort(key=lambda each: each.arrived)
    simulate(scheduler, arrivals(requests), COST)
    rows, once = scheduler.ledger.requests, shared // BLOCK * BLOCK
    assert [row.finish for row in rows] == [Finish.LENGTH] * count
    again = sum([once - row.cached for row in rows]) - once
    assert 0 <= again <= (LEAST - 1) * BLOCK * (count - 1)
    event(f"{min(again, 1)} again, {sum(row.cached for row in rows) > 0}")


# -- no request waits in vain


@pytest.mark.parametrize(
    "other",
    [
        ask("b", (*SHARED[: LEAST * BLOCK - 1], 90, 90, 90), 2),  # one block in common
        sharing("b", salt="tenant"),  # it must not learn what others have cached
        sharing("b", adapter="sql"),  # other weights, other keys and values
        sharing("b", sampling=Sampling(prompt_logprobs=0)),  # each of its positions is computed
        ask("b", SHARED[: LEAST * BLOCK], 2),  # the last token is computed in any case
        ask("b", 1, 2),
    ],
)
def test_a_request_that_would_gain_too_little_from_a_leader_joins_at_once(other):
    scheduler = scheduler_of(Policies(Continuous(4), step_tokens=100))
    add(scheduler, sharing("a"), other)
    assert step(scheduler) == {"a": 41, "b": len(other.prompt)}


def test_a_prompt_that_is_scored_is_a_leader_too():
    scheduler = scheduler_of(Policies(Continuous(4), step_tokens=100))
    add(scheduler, sharing("a", sampling=Sampling(prompt_logprobs=0)), sharing("b"))
    assert begin(scheduler)[1] == {"a": 41}


def test_each_member_of_a_group_computes_the_shared_prefix_itself():
    scheduler = scheduler_of(Policies(Static(2), step_tokens=100))
    add(scheduler, sharing("a"), sharing("b"))
    assert step(scheduler) == {"a": 41, "b": 41}


def test_the_slot_of_a_request_that_waits_for_a_prefix_is_kept():
    scheduler = scheduler_of(Policies(Continuous(3), step_tokens=100))
    add(scheduler, sharing("a"), sharing("b"), ask("c", (7,) * 9, 5), ask("d", (8,) * 9, 5))
    assert step(scheduler) == {"a": 41, "c": 9}
    assert step(scheduler) == {"a": 1, "b": 1, "c": 1}


def test_the_lane_slot_of_a_request_that_waits_for_a_prefix_is_kept():
    lane = Lane("a", slots=Share(most=2))
    scheduler = scheduler_of(Policies(Continuous(4), step_tokens=100), lane)
    add(scheduler, *(sharing(id, lane="a") for id in "ab"), ask("c", (7,) * 9, 5, lane="a"))
    assert step(scheduler) == {"a": 41}
    assert step(scheduler) == {"a": 1, "b": 1}


@pytest.mark.parametrize("policies", [Policies(Continuous(9), step_tokens=64), CHUNKED])
@pytest.mark.parametrize("fate", ["cancelled", "failed", "preempted"])
def test_another_request_leads_if_the_leader_is_cancelled_fails_or_is_preempted(policies, fate):
    scheduler = scheduler_of(policies)
    add(scheduler, sharing("a"), sharing("b"), sharing("c"))
    batch, first = begin(scheduler)
    end(scheduler, batch, errors={0: "broken"} if fate == "failed" else {})
    if fate == "cancelled":
        scheduler.apply([Cancel("a")], 0)
    elif fate == "preempted":
        (a,) = scheduler.roster.running.values()
        scheduler.roster.preempt(a)
    scheduler.check()
    while scheduler.roster.by_id:
        assert step(scheduler)
    rows = {row.id: row for row in scheduler.ledger.requests}
    kept = 0 if fate == "failed" else first["a"] // BLOCK * BLOCK
    assert [rows[id].cached for id in "bc"] == [kept, 40] or fate == "preempted"
    assert [rows[id].finish for id in "bc"] == [Finish.LENGTH] * 2


def test_no_request_waits_for_a_leader_that_the_step_does_not_serve():
    """The leader is ranked after the request, so the step may have no tokens left for it."""
    slow = Lane("slow", priority=1, slots=Share(least=1))
    fast = Lane("fast", Budget(ttft=10_000 * MS))
    policies = replace(CHUNKED, order=ByDeadline(), preempt=ByLane())
    scheduler = scheduler_of(policies, slow, fast)
    add(scheduler, sharing("a", lane="slow"))
    assert step(scheduler) == {"a": 16}
    add(scheduler, sharing("b", lane="fast"))
    assert step(scheduler) == {"b": 16}, "it goes first, with what is there"
    (a, b) = scheduler.roster.running.values()
    assert (a.computed, b.computed) == (16, 32)


def test_no_request_waits_for_a_leader_that_is_slower_than_itself():
    """The leader's lane has four tokens of a step; the other computes sixteen."""
    slow, fast = Lane("slow", chunk=4), Lane("fast")
    scheduler = scheduler_of(replace(CHUNKED, chunk=Fixed(20)), slow, fast)
    add(scheduler, sharing("a", lane="slow"), sharing("b", lane="fast"))
    assert step(scheduler) == {"a": 4, "b": 16}


def test_a_request_waits_for_a_slow_leader_only_if_that_costs_no_more_steps():
    slow, fast = Lane("slow", chunk=4), Lane("fast")
    scheduler = scheduler_of(replace(CHUNKED, chunk=Fixed(20)), slow, fast)
    add(scheduler, sharing("a", lane="slow"))
    for _ in range(7):
        step(scheduler)
    add(scheduler, sharing("b", lane="fast"))
    assert step(scheduler) == {"a": 4, "b": 13}, "three blocks in as many steps, or in one"
    scheduler = scheduler_of(replace(CHUNKED, chunk=Fixed(8)), slow, fast)
    add(scheduler, sharing("a", lane="slow"))
    for _ in range(8):
        step(scheduler)
    add(scheduler, sharing("b", lane="fast"))
    assert step(scheduler) == {"a": 4}, "two blocks in two steps, or in two"


@pytest.mark.parametrize("left, waits", [(99, False), (103, True), (-1, True)])
def test_a_request_at_risk_waits_for_no_prefix_if_this_step_gives_its_first_token(left, waits):
    """The prompt takes 10 + 41 ms alone. A request that is late already has no reason to hurry."""
    lane = Lane("a", Budget(ttft=1_000 * MS))
    scheduler = scheduler_of(Policies(Continuous(4), step_tokens=100), lane)
    add(scheduler, sharing("a", lane="a"), sharing("b", lane="a"))
    assert step(scheduler, (1_000 - left) * MS) == ({"a": 41} if waits else {"a": 41, "b": 41})


def test_a_request_at_risk_waits_if_this_step_cannot_give_its_first_token():
    lane = Lane("a", Budget(ttft=1_000 * MS))
    scheduler = scheduler_of(Policies(Continuous(4), chunk=Fixed(60), step_tokens=64), lane)
    add(scheduler, sharing("a", lane="a"), sharing("b", lane="a"))
    assert step(scheduler, 950 * MS) == {"a": 41}


# -- a step in flight


def test_a_request_waits_for_prefix_blocks_that_are_in_flight():
    scheduler = scheduler_of(Policies(Continuous(4), step_tokens=100))
    add(scheduler, sharing("a"))
    first, _ = begin(scheduler)
    add(scheduler, sharing("b"))
    second, tokens = begin(scheduler)
    assert not tokens and not second.rows
    end(scheduler, first)
    assert step(scheduler) == {"a": 1, "b": 1}


def test_only_blocks_in_flight_count_if_the_leader_has_no_row_in_the_step():
    """The step skips the leader, of whose prefix 16 tokens are in flight: four blocks."""
    scheduler = scheduler_of(replace(CHUNKED, chunk=Fixed(16)))
    add(scheduler, sharing("a", own=4))
    first, _ = begin(scheduler)
    (a,) = scheduler.roster.running.values()
    add(scheduler, sharing("b"))
    prefixes = Prefixes(scheduler.pool, scheduler.roster, View(0, ()))
    assert prefixes.keep(scheduler.roster.by_id["b"], {}, [], 16), "four blocks come"
    a.scheduled = 7  # one full block, which is too few to wait for
    assert not prefixes.keep(scheduler.roster.by_id["b"], {}, [], 16)
    a.scheduled = 16
    end(scheduler, first)


# -- what it costs


def test_a_step_keeps_a_limited_number_of_requests_waiting_for_prefixes():
    scheduler = scheduler_of(Policies(Continuous(200), step_tokens=400), blocks=2_000)
    add(scheduler, sharing("a"), *(sharing(f"b{i}") for i in range(MOST)), ask("c", (7,) * 9, 5))
    assert step(scheduler) == {"a": 41}
    assert len(step(scheduler)) == MOST + 2


def test_no_prefix_is_looked_up_while_no_prompt_is_computed(monkeypatch):
    scheduler = scheduler_of(Policies(Continuous(4), step_tokens=100))
    add(scheduler, sharing("a", most=9))
    step(scheduler)
    matched = []
    real = scheduler.pool.match

    def match(hashes):
        matched.append(len(hashes))
        return real(hashes)

    monkeypatch.setattr(scheduler.pool, "match", match)
    add(scheduler, sharing("b"))
    assert step(scheduler) == {"a": 1, "b": 1}
    assert matched == [10], "when it joins"
