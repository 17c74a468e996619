"""Windows that follow the load: longer while the budget holds and requests wait, else shorter."""

from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.cost import lane_sizes
from headway.core.cost.lane_sizes import LaneSizes
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine
from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.journal import journal
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from headway.sim.replay import JournalInbox
from tests.sim.test_coast import assert_same
from tests.traces import BLOCK, MS, ask, budgeted_cases, crowded, run

BUDGET = Budget(ttft=100, queue=60)


def row(**rest):
    """A request that keeps its budget, unless told otherwise."""
    times = {"arrived": 0, "first_scheduled": 50, "first_token": 90, "last_token": 150}
    counts = {"prompt": 9, "generated": 4, "cached": 0, "discarded": 0, "preemptions": 0}
    plain = {"id": "r", "lane": "chat", "budget": BUDGET, "finish": Finish.LENGTH, "finished": 150}
    return RequestRow(**plain | times | counts | {"nanoseconds": 1} | rest)


def after(rows, waiting=3, between=(16, 48), count=4):
    """The changes that these requests bring, each made before the next one ends."""
    sizes, changes = LaneSizes(), []
    for each in rows:
        change = sizes.window_ended(each, "chat", between, count=count, waiting=waiting)
        if change:
            sizes.windows["chat"] = change.after
            changes.append(change)
    return changes


GOOD, LATE = row(), row(arrived=-20)


def test_a_window_grows_by_a_sixteenth_of_its_range_up_to_its_high():
    assert after([GOOD] * 7) == []
    (change,) = after([GOOD] * 8)
    assert (change.lane, change.what, change.before, change.after) == ("chat", "window", 16, 18)
    assert (change.reason, change.at) == ("8 of 8 kept the budget, and 3 wait", 150)
    assert [each.after for each in after([GOOD] * 8 * 20)] == [*range(18, 49, 2)]
    assert [each.after for each in after([GOOD] * 8 * 3, between=(0, 2))] == [1, 2]


def test_a_window_stays_while_nobody_waits_and_a_round_is_a_group():
    assert after([GOOD] * 40, waiting=0) == []
    assert after([GOOD] * 11, count=12) == [] and after([GOOD] * 12, count=12)


def test_late_requests_cut_a_tenth_of_the_window_down_to_its_low():
    changes = after([GOOD] * 8 * 16 + [LATE] * 8 * 16)[16:]
    sizes = [48, 43, 38, 34, 30, 27, 24, 21, 18, 16]
    assert [(each.before, each.after) for each in changes] == [*pairwise(sizes)]
    assert changes[0].reason == "0 of 8 kept the budget"


@pytest.mark.parametrize(
    "rest, grows",
    [
        ({"finish": Finish.CANCELLED}, None),
        ({"finish": Finish.ERROR}, None),
        ({"budget": Budget()}, None),
        ({"first_scheduled": NEVER, "first_token": NEVER, "finish": Finish.EXPIRED}, False),
        ({"first_scheduled": 61}, False),
        ({"budget": Budget(queue=60)}, True),
    ],
    ids=["cancelled", "failed", "no budget", "expired in its line", "queue", "any limit"],
)
def test_a_window_follows_only_requests_that_kept_or_missed_a_budget(rest, grows):
    """The window first grows twice, so that a cut is seen."""
    changes = after([GOOD] * 16 + [row(**rest)] * 8)[2:]
    assert [each.after > each.before for each in changes] == ([] if grows is None else [grows])


# -- in the engine


def served(budget, join, every=7 * MS, count=400):
    """Requests come at equal distances; a step takes 30 ms. Changes, lane loads, group sizes."""
    lanes = Lane("chat", budget), Lane("bulk")
    scheduler = Scheduler(Settings(500, BLOCK, lanes, Policies(join, step_tokens=64)))
    clock = VirtualClock()
    asked = [ask(f"r{i}", (i,), 2, every * i, lane="chat") for i in range(count)]
    inbox, price = TraceInbox(arrivals(asked), clock), StepCost.of(30 * MS)
    engine = Engine(scheduler, PricedExecutor(price, clock, FakeExecutor(500, BLOCK)), inbox, clock)
    groups = list[int]()
    while not scheduler.finished:
        engine.step()
        scheduler.check()
        groups.append(scheduler.group.slots)
    return scheduler.ledger.take_changes(), scheduler.load(0).lanes, groups


@pytest.mark.no_cover
def test_the_window_of_a_lane_grows_as_far_as_its_budget_allows():
    join = Dynamic(24, 0, {"chat": 160 * MS}, lows={"chat": 0})
    changes, lanes, groups = served(Budget(ttft=10_000 * MS), join, count=1_200)
    assert [each.after for each in changes] == [10 * MS * n for n in range(1, 17)]
    assert {(each.lane, each.what) for each in changes} == {("chat", "window")}
    assert max(groups) == 23, "160 ms have so many; after one step of 30 ms there are 4"
    assert lanes["chat"].window == 160 * MS and lanes["bulk"].window == 0
    changes, lanes, _ = served(Budget(ttft=110 * MS), join, count=1_200)
    found = [each.after for each in changes[8:]]
    assert len(found) > 30 and 72 * MS <= min(found) <= 80 * MS < max(found) <= 90 * MS, (
        "its budget less a step, a tenth less or one step of growth more"
    )


def test_the_common_window_follows_the_lanes_without_one_of_their_own():
    join = Dynamic(24, 160 * MS, {"bulk": 5 * MS}, lows={"": 0})
    changes, lanes, _ = served(Budget(ttft=10_000 * MS), join)
    assert {(each.lane, each.what) for each in changes} == {("", "window")}
    assert lanes["chat"].window == changes[-1].after and lanes["bulk"].window == 5 * MS


def test_full_groups_and_a_quiet_lane_leave_a_window_unchanged():
    wide, lows = Budget(ttft=10_000 * MS), {"chat": 0}
    full = Dynamic(2, 0, {"chat": 160 * MS}, lows=lows)
    assert served(wide, full)[0] == (), "there is no place for more"
    quiet = Dynamic(64, 0, {"chat": 160 * MS}, lows=lows)
    assert served(wide, quiet, every=100 * MS, count=40)[0] == (), "nobody waits"


def test_without_windows_the_load_tells_no_window():
    assert Scheduler(Settings(8)).load(0).lanes["default"].window == NEVER


QUICK = patch.object(lane_sizes, "LEAST_ROUND", 1)


@st.composite
def following(draw):
    """Cases whose lanes have budgets that they can miss, and windows that follow them."""
    case = draw(st.one_of(crowded(), budgeted_cases()))
    tight = [
        Budget(ttft=40 * MS),
        Budget(ttft=150 * MS),
        Budget(queue=60 * MS, e2e=900 * MS),
        Budget(e2e=300 * MS),
    ]
    lanes = tuple(Lane(each.name, draw(st.sampled_from(tight))) for each in case.lanes)
    high = draw(st.sampled_from([5, 40, 200])) * MS
    own = draw(st.sampled_from([{}, {"chat": high}, {"chat": high, "bulk": MS}]))
    lows = {name: draw(st.integers(0, own[name])) for name in own if draw(st.booleans())}
    if len(own) < 2 and (not lows or draw(st.booleans())):
        lows[""] = draw(st.integers(0, 60 * MS))
    join = Dynamic(4, 60 * MS, own, (), draw(st.integers(0, 2)), lows)
    policies = Policies(join, case.policies.order, step_tokens=16)
    return replace(case, policies=policies, lanes=lanes)


@pytest.mark.no_cover
@settings(deadline=None)
@given(following())
def test_a_window_stays_between_its_low_and_its_high(case):
    with QUICK:
        ran = run(case)
    join, changes = case.policies.join, ran.scheduler.ledger.take_changes()
    changes = [each for each in changes if each.what == "window"]
    event(f"{min(len(changes), 3)} changes")
    now = dict(join.lows)
    for each in changes:
        assert each.before == now[each.lane] != each.after
        high = join.windows[each.lane] if each.lane else join.window
        assert join.lows[each.lane] <= each.after <= high
        now[each.lane] = each.after
    loads = ran.scheduler.load(0).lanes
    assert all(loads[name].window == now[name] for name in now if name)


@pytest.mark.no_cover
@settings(deadline=None)
@given(following())
def test_coasting_and_a_replay_make_the_same_changes(case):
    with QUICK:
        assert_same(case)
        ran = run(case)
        given_, records = journal.read(ran.journal.splitlines())
        assert given_ == ran.scheduler.settings
        inbox, scheduler = JournalInbox(records), Scheduler(given_)
        engine = Engine(scheduler, inbox, inbox, inbox)
        while inbox.left:
            engine.step()
    assert scheduler.ledger.changes == ran.scheduler.ledger.changes
    assert scheduler.ledger.requests == ran.scheduler.ledger.requests


# -- what is refused


@pytest.mark.parametrize(
    "make, said",
    [
        (
            lambda: Dynamic(3, 5 * MS, lows={"": 6 * MS}),
            "a window between 6 and 5 ms: the first must not exceed the second",
        ),
        (lambda: Dynamic(3, 5, lows={"": -1}), "the first must not exceed the second"),
        (
            lambda: Dynamic(3, 5, {"bulk": 1}, lows={"chat": 1}),
            "lane 'chat' has no window that could follow the load",
        ),
        (
            lambda: settings_of(Dynamic(3, 5, {"bulk": 1}, lows={"bulk": 1})),
            "lane 'bulk' has a window that follows the load, and no budget that it could",
        ),
        (
            lambda: settings_of(Dynamic(3, 5, {"chat": 1}, lows={"": 1})),
            "there is a window that follows the load, and no budget that it could",
        ),
    ],
)
def test_a_range_that_means_nothing_is_refused(make, said):
    with pytest.raises(SettingError, match=said) as raised:
        make()
    assert "\n" not in str(raised.value)


def settings_of(join):
    return Settings(8, lanes=(Lane("bulk"), Lane("chat", BUDGET)), policies=Policies(join))


def test_one_lane_with_a_budget_is_enough_for_a_window_that_follows_the_load():
    assert settings_of(Dynamic(3, 5, {"chat": 1}, lows={"chat": 1})).lanes
    assert settings_of(Dynamic(3, 5, lows={"": 1})).lanes
