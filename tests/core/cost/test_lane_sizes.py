"""Slots that follow the load: more while the budget holds, fewer when it does not."""

from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.commands import Add, Retune
from headway.core.cost import lane_sizes
from headway.core.cost.lane_sizes import LaneSizes, keeps
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Line, Share
from headway.core.ledger import RequestRow
from headway.core.policies.join import Continuous, Dynamic
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings
from headway.engine import Engine
from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from tests.sim.test_coast import assert_same
from tests.traces import BLOCK, MS, ask, budgeted_cases, crowded, run

BUDGET = Budget(ttft=100, tpot=20, e2e=1_000)
LANE = Lane("chat", BUDGET, slots=Share(1, 20, 2))


def row(**rest):
    """A request that keeps its budget, unless told otherwise."""
    times = {"arrived": 0, "first_scheduled": 50, "first_token": 90, "last_token": 150}
    counts = {"prompt": 9, "generated": 4, "cached": 0, "discarded": 0, "preemptions": 0}
    plain = {"id": "r", "lane": "chat", "budget": BUDGET, "finish": Finish.LENGTH, "finished": 150}
    return RequestRow(**plain | times | counts | {"nanoseconds": 1} | rest)


def line(slots, waiting=0, batch=None, lane=LANE):
    made = Line(lane)
    made.slots, made.batch = slots, slots if batch is None else batch
    for number in range(waiting):
        made.insert(Sequence(number, ask(f"w{number}", 3, 3), [1]))
    return made


def after(rows, line):
    """The changes that these requests bring, each made before the next one ends."""
    sizes, changes = LaneSizes(), []
    for each in rows:
        if change := sizes.ended(each, line):
            line.slots = change.after
            changes.append(change)
    return changes


GOOD, SLOW = row(), row(last_token=90 + 3 * 21, finished=153)


def test_a_slot_is_added_after_a_round_inside_the_budget_while_requests_wait():
    assert after([GOOD] * 7, line(4, waiting=3)) == []
    (change,) = after([GOOD] * 8, line(4, waiting=3))
    assert (change.lane, change.what, change.before, change.after) == ("chat", "slots", 4, 5)
    assert change.reason == "8 of 8 kept the budget while they ran, and 3 wait"
    assert change.at == 150


def test_a_round_is_as_many_requests_as_the_lane_has_slots():
    assert after([GOOD] * 11, line(12, waiting=1)) == []
    assert [each.after for each in after([GOOD] * 12, line(12, waiting=1))] == [13]


@pytest.mark.parametrize(
    "seen",
    [
        line(4, waiting=0),
        line(4, waiting=5, batch=3),
        line(20, waiting=5),
        line(4, waiting=5, lane=Lane("chat", BUDGET, slots=Share(1, 20))),
    ],
    ids=["nobody waits", "not all slots are in use", "at the most", "the most is fixed"],
)
def test_slots_stay_if_they_are_not_needed_or_at_their_most(seen):
    assert after([GOOD] * 40, seen) == []


def test_a_round_outside_the_budget_cuts_a_tenth_of_the_slots_down_to_the_low():
    changes = after([SLOW] * 500, line(20, waiting=9))
    sizes = [20, 18, 16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2]
    assert [(each.before, each.after) for each in changes] == [*pairwise(sizes)]
    assert changes[0].reason == "0 of 20 kept the budget while they ran"


def test_a_round_keeps_the_budget_if_nineteen_of_twenty_requests_do():
    assert [each.after for each in after([GOOD] * 18 + [SLOW], line(19, waiting=1))] == [17]
    assert [each.after for each in after([GOOD] * 19 + [SLOW], line(20, waiting=1))] == []
    wider = replace(LANE, slots=Share(1, 30, 2))
    assert [e.after for e in after([GOOD] * 19 + [SLOW], line(20, 1, lane=wider))] == [21]


def resizing(join):
    """A scheduler whose lane's slots and whose strategy's groups follow the load."""
    return Scheduler(Settings(99, BLOCK, (LANE,), Policies(join)))


def test_slots_and_groups_are_not_resized_for_the_same_request():
    scheduler = resizing(Dynamic(8, 0, least=2))
    scheduler.apply([Add(ask(f"w{i}", 3, 3, lane="chat")) for i in range(3)], 0)
    scheduler.roster.lines["chat"].batch = 2
    changes = [scheduler.resizing.ended(GOOD, 0) for _ in range(9)]
    assert [[each.what for each in made] for made in changes] == [[]] * 7 + [["slots"], ["group"]]


def test_the_group_size_is_reset_only_by_another_strategy():
    scheduler = resizing(Dynamic(8, 0, least=2))
    scheduler.estimates.sizes.group = 5
    for version, size, group in ((1, 8, 5), (2, 9, 0)):
        policies = Policies(Dynamic(size, 0, least=2))
        scheduler.apply([Retune(version, policies, (LANE,))], 0)
        assert scheduler.estimates.sizes.group == group


@pytest.mark.parametrize(
    "seen, kept",
    [
        (GOOD, True),
        (SLOW, False),
        (row(first_token=151, last_token=160, finished=160), False),
        (row(arrived=-10_000), True),
        (row(finished=1_051), False),
        (row(generated=0, first_token=NEVER, last_token=NEVER, finish=Finish.COMPUTED), True),
        (row(generated=2, finish=Finish.EXPIRED), False),
    ],
    ids=["in time", "tpot", "ttft", "only its wait is too long", "e2e", "no answer", "expired"],
)
def test_budgets_are_judged_from_a_requests_start_and_not_its_arrival(seen, kept):
    assert keeps(seen) == kept


@pytest.mark.parametrize(
    "rest",
    [
        {"finish": Finish.CANCELLED},
        {"finish": Finish.ERROR},
        {"first_scheduled": NEVER, "finish": Finish.EXPIRED},
    ],
)
def test_cancelled_failed_and_never_started_requests_change_no_slots(rest):
    assert after([replace(SLOW, **rest)] * 50, line(9)) == []


EARLY = {"finish": Finish.EXPIRED, "finished": 150}
SILENT = {"generated": 0, "first_token": NEVER, "last_token": NEVER}


@pytest.mark.parametrize(
    "rest, counts",
    [
        ({}, False),
        ({"arrived": -60}, False),
        ({"arrived": -850}, True),
        (SILENT | {"arrived": 51}, False),
        (SILENT | {"arrived": 50}, True),
        ({"first_token": 150, "last_token": 150}, False),
        ({"first_token": 151, "last_token": 151, "finished": 160}, True),
        ({"last_token": 90 + 3 * 21}, True),
    ],
    ids=["early", "its wait", "e2e", "no token yet", "no token", "just in time", "ttft", "tpot"],
)
def test_a_request_that_expires_counts_only_if_it_has_missed_a_limit_of_its_lane(rest, counts):
    """Its caller may have set a shorter time than the lane's."""
    expired = row(**EARLY | rest)
    assert bool(after([expired] * 20, line(20))) == counts


@pytest.mark.parametrize(
    "rest, counts",
    [
        ({"arrived": 0}, False),
        ({"arrived": -11}, True),
        (SILENT | {"first_scheduled": NEVER, "arrived": 80}, False),
        (SILENT | {"first_scheduled": NEVER, "arrived": 79}, True),
    ],
    ids=["early", "ttft", "not started yet", "not started in time"],
)
def test_the_wait_of_an_expired_request_counts_for_a_window(rest, counts):
    sizes, budget = LaneSizes(), replace(BUDGET, queue=70)
    sizes.windows["chat"] = 100
    expired = row(**EARLY | rest, budget=budget)
    changes = [sizes.window_ended(expired, "chat", (10, 200), count=8, waiting=0) for _ in range(8)]
    assert bool(changes[-1]) == counts


# -- in the engine


def served(budget, count=60):
    """A lane of 1 to 6 slots serves `count` requests; each row takes 10 ms of a step."""
    lane = Lane("chat", budget, slots=Share(0, 6, 1))
    policies = Policies(Continuous(8), step_tokens=64)
    scheduler, clock = Scheduler(Settings(500, BLOCK, (lane,), policies)), VirtualClock()
    inbox = TraceInbox(arrivals([ask(f"r{i}", (i,), 4, lane="chat") for i in range(count)]), clock)
    price = StepCost.of(MS, per_token=10 * MS)
    engine = Engine(scheduler, PricedExecutor(price, clock, FakeExecutor(500, BLOCK)), inbox, clock)
    most = list[int]()
    while not scheduler.finished:
        engine.step()
        scheduler.check()
        most.append(engine.load.running)
        assert engine.load.running <= max(most[-2:]) and 1 <= engine.load.lanes["chat"].slots <= 6
    changes = scheduler.ledger.take_changes()
    assert scheduler.ledger.take_changes() == (), "each change is taken once"
    return changes, most


def test_a_lane_grows_to_its_high_or_as_far_as_its_budget_allows():
    changes, running = served(Budget(tpot=1_000 * MS))
    assert [each.after for each in changes] == [2, 3, 4, 5, 6] and max(running) == 6
    changes, running = served(Budget(tpot=35 * MS), 200)
    assert max(running) <= 4, "three rows take 31 ms, four 41"
    assert {each.after - each.before for each in changes} == {1, -1}


def grouped(budget):
    """Groups of 1 to 6 serve sixty requests. Returns the changes and the sizes of the groups."""
    policies = Policies(Dynamic(6, 0, least=1), step_tokens=64)
    lanes = Lane("chat", budget), Lane("bulk")
    scheduler, clock = Scheduler(Settings(500, BLOCK, lanes, policies)), VirtualClock()
    asked = [ask(f"r{i}", (i,), 4, lane="bulk" if i == 30 else "chat") for i in range(60)]
    inbox, price = TraceInbox(arrivals(asked), clock), StepCost.of(MS, per_token=10 * MS)
    engine = Engine(scheduler, PricedExecutor(price, clock, FakeExecutor(500, BLOCK)), inbox, clock)
    sizes = list[int]()
    while not scheduler.finished:
        engine.step()
        scheduler.check()
        sizes.append(scheduler.group.slots)
    return scheduler.ledger.take_changes(), sizes


def test_groups_grow_while_a_whole_group_waits_and_the_budget_holds():
    changes, sizes = grouped(Budget(tpot=1_000 * MS))
    assert [each.after for each in changes] == [2, 3, 4, 5, 6] and max(sizes) == 6
    assert {(each.lane, each.what) for each in changes} == {("", "group")}
    changes, sizes = grouped(Budget(tpot=35 * MS))
    assert max(sizes) == 4 and {each.after - each.before for each in changes} == {1, -1}
    changes, sizes = grouped(Budget(tpot=5 * MS))
    assert not changes and {*sizes} == {1}, "it starts with the least"


def test_a_new_scheduler_has_no_changes_to_take():
    scheduler = Scheduler(Settings(8))
    assert scheduler.ledger.take_changes() == ()


QUICK = patch.object(lane_sizes, "LEAST_ROUND", 1)


@st.composite
def following(draw):
    """Cases whose lanes have budgets that they can miss, and slots that follow them."""
    case = draw(st.one_of(crowded(), budgeted_cases()))
    tight = [Budget(tpot=12 * MS), Budget(ttft=40 * MS), Budget(e2e=300 * MS, tpot=30 * MS)]
    lanes = list[Lane]()
    for lane in case.lanes:
        slots = Share(0, 4, draw(st.integers(1, 3)))
        shares = {"slots": slots, "step_tokens": Share()}
        lanes.append(replace(lane, budget=draw(st.sampled_from(tight)), **shares))
    if draw(st.booleans()):
        join = Dynamic(4, draw(st.sampled_from([0, 20, 200])) * MS, least=1)
        policies = Policies(join, case.policies.order, step_tokens=16)
        case = replace(case, policies=policies)
    return replace(case, lanes=tuple(lanes))


@pytest.mark.no_cover
@settings(deadline=None)
@given(following())
def test_a_lane_stays_between_its_low_and_its_high(case):
    with QUICK:
        ran = run(case)
    changes = ran.scheduler.ledger.take_changes()
    event(f"{min(len(changes), 3)} changes")
    shares = {lane.name: lane.slots for lane in case.lanes} | {"": Share(0, 4, 1)}
    now = {name: share.low for name, share in shares.items()}
    for each in changes:
        share = shares[each.lane]
        assert each.what == ("slots" if each.lane else "group")
        assert each.before == now[each.lane] != each.after
        assert share.low <= each.after <= share.most
        now[each.lane] = each.after


@pytest.mark.no_cover
@settings(deadline=None)
@given(following())
def test_coasting_makes_the_same_changes(case):
    with QUICK:
        assert_same(case)


# -- what is refused


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Share(0, 3, 9), "between 9 and 3: the first must not exceed the second"),
        (lambda: Share(3, 9, 2), "the first must be 1 or more, and no less than the least, 3"),
        (lambda: Share(0, NEVER, 2), "between 2 and"),
        (
            lambda: Settings(8, lanes=(Lane("bulk", slots=Share(0, 9, 2)),)),
            "lane 'bulk' has slots between 2 and 9, and no ttft, tpot or e2e that they could",
        ),
        (lambda: Dynamic(3, 0, least=9), "between 9 and 3: the first must not exceed the second"),
        (
            lambda: Settings(8, policies=Policies(Dynamic(9, 0, least=2))),
            "the size of groups follows the load, and no lane has a ttft, tpot or e2e",
        ),
        (
            lambda: Settings(8, lanes=(Lane("chat", BUDGET, blocks=Share(0, 9, 2)),)),
            "lane 'chat': blocks cannot follow the load; slots can",
        ),
    ],
)
def test_a_range_that_means_nothing_is_refused(make, said):
    with pytest.raises(SettingError, match=said):
        make()
