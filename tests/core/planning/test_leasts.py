"""The step tokens that a lane keeps: it has them in every step, but no more than it needs."""

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.batch import Output, Want
from headway.core.commands import Add, Retune
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed
from headway.core.policies.defer import WithoutDeadline, WithTimeToSpare
from headway.core.policies.join import Continuous, Dynamic
from headway.core.policies.mix import Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError
from tests.sim.test_coast import assert_same
from tests.traces import BLOCK, COST, MS, Crowd, ask, budgeted_cases, crowded, keeping, run

BULK = Lane("bulk", priority=1, step_tokens=Share(3))
CHAT = Lane("chat", Budget(ttft=10_000 * MS, tpot=1_000 * MS))
CHUNKED = Policies(Continuous(4), Priority(), chunk=Fixed(8), step_tokens=12)
SLACK = replace(CHUNKED, chunk=BySlack(least=2, stretch=1), step_tokens=64)


def scheduler_of(policies, *lanes, blocks=64, cost=COST):
    return Scheduler(Settings(blocks, BLOCK, lanes or (BULK, CHAT), policies, cost=cost))


def add(scheduler, *names, prompt=100, most=30):
    """Requests named after their lane, each with a prompt of its own."""
    made = [ask(n, (50 + ord(n[-1]),) * prompt, most, lane=n[:-1]) for n in names]
    scheduler.apply([Add(request) for request in made], 0)


def step(scheduler):
    """The ids and tokens of the next step's rows; each row that wants a token gets 9."""
    names = {s.number: s.request.id for s in scheduler.roster.by_id.values()}
    batch = scheduler.schedule(0)
    scheduler.check()
    outputs = tuple((9,) if row.want is Want.LAST else () for row in batch.rows)
    scheduler.commit(batch, Output(outputs), 0)
    scheduler.check()
    return {names[row.sequence]: len(row.tokens) for row in batch.rows}


def test_a_lane_without_a_kept_slot_joins_no_full_chunk_for_its_kept_tokens():
    scheduler = scheduler_of(CHUNKED)
    add(scheduler, "chata")
    assert step(scheduler) == {"chata": 8}
    add(scheduler, "bulkb")
    assert step(scheduler) == {"chata": 8}, "it has no slot within its least"
    scheduler = scheduler_of(CHUNKED)
    add(scheduler, "bulkb")
    assert step(scheduler) == {"bulkb": 8}, "alone it has everything"
    add(scheduler, "chata")
    for _ in range(5):
        assert step(scheduler) == {"bulkb": 8}, "who runs goes first, by priority"


def test_a_lane_with_a_kept_slot_joins_with_its_kept_tokens_beside_others():
    bulk = replace(BULK, slots=Share(1))
    policies = replace(CHUNKED, preempt=ByLane(), order=ByDeadline())
    scheduler = scheduler_of(policies, bulk, CHAT)
    add(scheduler, "chata", "chatb", "bulkc", "bulkd")
    for _ in range(12):
        assert step(scheduler) == {"bulkc": 3, "chata": 5}
    assert [s.request.id for s in scheduler.roster.lines["bulk"].waiting] == ["bulkd"]


def test_a_misfit_leaves_the_kept_tokens_to_the_next_request_of_its_lane():
    scheduler = scheduler_of(CHUNKED, replace(BULK, slots=Share(1)), CHAT, blocks=14)
    add(scheduler, "chata", prompt=40, most=4)
    assert step(scheduler) == {"chata": 8}
    add(scheduler, "bulkb", prompt=24, most=4)
    add(scheduler, "bulkc", prompt=8, most=4)
    assert step(scheduler) == {"bulkc": 3, "chata": 5}, "b needs more blocks than are free"


def test_kept_tokens_that_a_lane_does_not_need_go_to_others():
    scheduler = scheduler_of(CHUNKED, replace(BULK, step_tokens=Share(4), slots=Share(1)), CHAT)
    add(scheduler, "bulka", prompt=2, most=3)
    add(scheduler, "chatb")
    assert step(scheduler) == {"bulka": 2, "chatb": 6}
    assert step(scheduler) == {"bulka": 1, "chatb": 8}
    assert step(scheduler) == {"bulka": 1, "chatb": 8}
    assert step(scheduler) == {"chatb": 8}


def test_decodes_count_against_the_kept_tokens_of_their_lane():
    """Two decodes use two of the lane's three kept tokens."""
    scheduler = scheduler_of(CHUNKED)
    add(scheduler, "bulka", "bulkb", prompt=4)
    assert step(scheduler) == {"bulka": 4, "bulkb": 4}
    add(scheduler, "bulkc", prompt=8, most=4)
    step(scheduler)
    scheduler = scheduler_of(replace(CHUNKED, order=FirstCome()), CHAT, BULK)
    add(scheduler, "chata", "bulkb", "bulkc", prompt=2)
    step(scheduler)
    add(scheduler, "chatd")
    step(scheduler)
    assert step(scheduler) == {"chata": 1, "bulkb": 1, "bulkc": 1, "chatd": 8}


def test_kept_tokens_go_to_lanes_in_their_order_and_within_a_lane_by_arrival():
    lanes = [Lane(name, step_tokens=Share(3), slots=Share(2)) for name in ("b", "a")]
    policies = replace(CHUNKED, order=ShortestFirst(), join=Continuous(6), step_tokens=14)
    scheduler = scheduler_of(policies, *lanes, CHAT)
    for name in ("chatx", "ay", "bz"):
        add(scheduler, name, prompt=40)
    add(scheduler, "bs", prompt=2)
    assert [*step(scheduler).items()] == [("bs", 2), ("bz", 1), ("ay", 3), ("chatx", 2)], (
        "who waits joins in the order of the strategy"
    )
    add(scheduler, "bt", prompt=3)
    assert step(scheduler) == {"bs": 1, "bz": 2 + 3, "ay": 3}, "who runs goes before who waits"


def test_running_sequences_of_a_lane_get_kept_tokens_by_arrival_not_by_joining():
    scheduler = scheduler_of(replace(CHUNKED, order=ShortestFirst()), replace(BULK, chunk=4))
    add(scheduler, "bulka", prompt=100)
    add(scheduler, "bulkb", prompt=50)
    assert step(scheduler) == {"bulkb": 4} and [*scheduler.roster.running] == [1, 0]
    assert step(scheduler) == {"bulka": 3, "bulkb": 1}


def test_of_several_pending_tokens_a_lane_keeps_those_that_have_a_block():
    """The sequence could use more, but would have to give up its own blocks for that."""
    scheduler = scheduler_of(CHUNKED, replace(BULK, step_tokens=Share(1)), CHAT, blocks=3)
    add(scheduler, "chata", prompt=5, most=4)
    add(scheduler, "bulkb", prompt=3, most=5)
    scheduler.commit(scheduler.schedule(0), Output(((9,), (9, 9, 9))), 0)
    assert step(scheduler) == {"chata": 1, "bulkb": 1}


def test_a_lane_keeps_no_more_than_the_step_has_left_while_more_run_than_have_slots():
    """After a change to two slots, four others still run and have their next tokens."""
    scheduler = scheduler_of(replace(CHUNKED, join=Continuous(6)))
    add(scheduler, *(f"chat{name}" for name in "abcd"), prompt=2)
    assert sum(step(scheduler).values()) == 8
    add(scheduler, "bulke", prompt=20)
    assert step(scheduler)["bulke"] == 8
    fewer = replace(CHUNKED, join=Continuous(2), step_tokens=5)
    scheduler.apply([Retune(1, fewer, (BULK, CHAT))], 0)
    assert step(scheduler) == {f"chat{name}": 1 for name in "abcd"} | {"bulke": 1}


@pytest.mark.parametrize(
    "order, second",
    [(ByDeadline(), {"bulka": 3, "chatb": 2}), (Priority(), {"bulka": 3 + 2})],
    ids=["in time first", "who runs first"],
)
def test_the_time_of_a_step_does_not_cut_a_lanes_kept_tokens(order, second):
    """A step has time for one token. It also has two prompt tokens whatever its time, and these are
    not the lane's kept tokens."""
    bulk = replace(BULK, slots=Share(1))
    scheduler = scheduler_of(replace(SLACK, order=order, preempt=ByLane()), bulk, CHAT)
    add(scheduler, "bulka", "chatb")
    assert step(scheduler) == {"bulka": 3, "chatb": 2}
    for _ in range(9):
        assert step(scheduler) == second


def test_a_lane_may_have_more_than_its_least_if_there_is_time():
    bulk = replace(BULK, slots=Share(1))
    scheduler = scheduler_of(replace(SLACK, chunk=BySlack(least=2, stretch=3)), bulk, CHAT)
    add(scheduler, "bulka")
    assert step(scheduler) == {"bulka": 23}, "10 ms, and 1 for each, are 3 times 11"
    scheduler = scheduler_of(replace(SLACK, chunk=BySlack(least=4, stretch=1)), bulk, CHAT)
    add(scheduler, "bulka")
    assert step(scheduler) == {"bulka": 3 + 4}


@pytest.mark.parametrize("defer", [WithoutDeadline(), WithTimeToSpare()])
def test_deferrable_decodes_miss_a_step_only_beyond_their_lanes_kept_tokens(defer):
    policies = replace(SLACK, join=Continuous(6), order=ByDeadline(), defer=defer)
    bulk = replace(BULK, step_tokens=Share(2))
    price = StepCost.of(MS, per_token=10 * MS)
    scheduler = scheduler_of(policies, bulk, CHAT, cost=price)
    add(scheduler, "bulka", "bulkb", "bulkc", "bulkd", prompt=2)
    for _ in range(4):
        step(scheduler)
    add(scheduler, "chate")
    for _ in range(5):
        assert step(scheduler) == {"bulka": 1, "bulkb": 1, "chate": 2}


@pytest.mark.parametrize("policies", [CHUNKED, replace(SLACK, order=ByDeadline())])
def test_a_request_within_the_kept_slots_joins_although_others_use_the_kept_tokens(policies):
    """The lane keeps two slots and one token of a step. Its first answer uses the token."""
    bulk = replace(BULK, slots=Share(2), step_tokens=Share(1))
    scheduler = scheduler_of(policies, bulk, CHAT)
    add(scheduler, "bulka", prompt=2)
    step(scheduler)
    add(scheduler, "bulkb", prompt=2)
    assert step(scheduler) == {"bulka": 1, "bulkb": 2}


def test_a_lane_without_free_blocks_leaves_its_kept_tokens_to_others():
    bulk = replace(BULK, slots=Share(1))
    scheduler = scheduler_of(CHUNKED, bulk, CHAT, blocks=26)
    add(scheduler, "chata", prompt=90, most=2)
    step(scheduler)
    add(scheduler, "bulkb", prompt=20, most=4)
    for _ in range(3):
        assert step(scheduler) == {"chata": 8}


@pytest.mark.parametrize("order", [Priority(), ByDeadline(patience=0, turn=1)])
def test_a_waiting_request_that_does_not_fit_is_overtaken_once_and_not_twice(order):
    bulk = replace(BULK, slots=Share(1))
    scheduler = scheduler_of(replace(CHUNKED, order=order), bulk, CHAT, blocks=26)
    add(scheduler, "chata", prompt=90, most=9)
    while not scheduler.roster.by_id["chata"].generated:
        step(scheduler)
    add(scheduler, "bulkb", prompt=20, most=4)
    add(scheduler, "chatc", prompt=2, most=4)
    assert step(scheduler) == {"chata": 1, "chatc": 2}
    (waiting,) = scheduler.roster.lines["bulk"].waiting
    assert waiting.overtaken == 1


# -- in any trace


@st.composite
def kept(draw):
    """Cases in which both lanes keep tokens, and mostly a slot each."""
    case = draw(st.one_of(crowded(), budgeted_cases()))
    policies = replace(
        case.policies,
        join=Continuous(draw(st.sampled_from([2, 4]))),
        order=draw(st.sampled_from([FirstCome(), Priority(), ShortestFirst(), ByDeadline()])),
        mix=Mixed(),
        chunk=draw(st.sampled_from([Fixed(6), Fixed(12), BySlack(1, 2), BySlack(4, sure=1.0)])),
        preempt=draw(st.sampled_from([Youngest(), ByLane()])),
        step_tokens=draw(st.integers(10, 24)),
    )
    slots = Share(draw(st.integers(0, policies.slots // 2)))
    lanes = tuple(replace(lane, slots=slots) for lane in case.lanes)
    leasts = [draw(st.integers(1, 8)) for _ in lanes]
    return replace(case, policies=policies, lanes=keeping(lanes, policies, leasts))


@settings(deadline=None)
@given(kept())
def test_each_lane_has_its_least_in_every_step_of_every_trace(case):
    """The steps are checked by tests/lane_rules.py."""
    ran = run(case)
    for name in ran.met:
        event(name)
    assert len(ran.scheduler.ledger.requests) == len(case.requests)


@pytest.mark.no_cover
@settings(deadline=None)
@given(kept())
def test_coasting_gives_the_same_rows_with_kept_tokens(case):
    assert_same(case)


# -- what is refused


@pytest.mark.parametrize(
    "policies, lane, said",
    [
        (Policies(Dynamic(4, 0)), {}, "lane 'bulk' keeps step_tokens, and join Dynamic has no"),
        (Policies(Crowd(4), chunk=Fixed(4)), {}, "join Crowd has no slots that fill one by one"),
        (Policies(Continuous(4)), {}, "and chunk Whole never splits a prompt"),
        (
            replace(CHUNKED, mix=PrefillFirst()),
            {},
            "and mix PrefillFirst has steps without its prompts or next tokens",
        ),
        (
            replace(CHUNKED, step_tokens=11),
            {"step_tokens": Share(8)},
            r"the lanes keep 8 step_tokens at least \(bulk 8\), and of 11 there are 7 beside one "
            "for each of 4 slots",
        ),
        (
            replace(CHUNKED, step_tokens=64),
            {"step_tokens": Share(9)},
            r"the lanes keep 9 step_tokens at least \(bulk 9\), and the prompts of a step have 8",
        ),
        (
            CHUNKED,
            {"step_tokens": Share(5), "chunk": 2, "slots": Share(0, 2)},
            "lane 'bulk' keeps 5 step_tokens and can use 4 at most",
        ),
    ],
)
def test_a_least_that_cannot_be_kept_is_refused(policies, lane, said):
    with pytest.raises(SettingError, match=said) as raised:
        scheduler_of(policies, replace(BULK, **lane))
    assert "\n" not in str(raised.value)
