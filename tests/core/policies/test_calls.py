"""Which items go into the next call of a function."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headway.core.batch import Output
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane
from headway.core.policies.calls import EACH as LEAD_EACH
from headway.core.policies.calls import LEAD, Calls
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine
from headway.errors import SettingError
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox

MS = 1_000_000
BASE, EACH = 5 * MS, MS  # of a call, and of each cell in it
LANES = (
    Lane("fast", Budget(e2e=30 * MS), priority=0),
    Lane("slow", Budget(e2e=100 * MS), priority=1),
    Lane("bulk", priority=2),
)
STEP = StepCost.of(BASE, EACH)


def item(id, at=0, cost=1, lane="bulk", **times):
    return at, Add(Request(id, (ord(id[0]),) * cost, 0, at, lane, **times))


def engine(policy, *commands, lanes=LANES, depth=1):
    """A function whose calls take BASE and EACH for each cell, in virtual time. A last item comes
    after ten seconds, because a closing engine holds no call."""
    settings = Settings(64, 1 << 40, lanes, Policies(policy, step_tokens=NEVER), depth=depth)
    clock = VirtualClock()
    timed = sorted([*commands, item("z", 10_000 * MS)], key=lambda each: each[0])
    inbox = TraceInbox(timed, clock)
    return Engine(Scheduler(settings), PricedExecutor(STEP, clock), inbox, clock)


def calls(policy, *commands, **rest):
    """When each call begins, in milliseconds, and its items."""
    made = engine(policy, *commands, **rest)
    while not made.scheduler.finished:
        made.step()
        made.scheduler.check()
    _, rows = made.scheduler.ledger.take()
    begun = {}
    for row in rows:
        if row.first_scheduled != NEVER:
            begun.setdefault(row.first_scheduled // MS, []).append(row.id)
    return [(at, " ".join(sorted(ids))) for at, ids in sorted(begun.items())][:-1]


def items(text, at=0, **rest):
    return [item(each, at, **rest) for each in text.split()]


def test_without_a_window_a_call_starts_whenever_none_runs():
    assert calls(Calls(8), *items("a"), *items("b c", 2 * MS), *items("d", 7 * MS)) == [
        (0, "a"),
        (6, "b c"),
        (13, "d"),
    ]


@pytest.mark.parametrize("prompt", [range(7, 10), (7, 8, 9)])
def test_a_prompt_that_is_a_range_is_served_like_any_other(prompt):
    made = engine(Calls(2), *[(0, Add(Request(id, prompt, 3, 0, "bulk"))) for id in "ab"])
    while not made.scheduler.finished:
        made.step()
        made.scheduler.check()
    steps, rows = made.scheduler.ledger.take()
    assert [step.tokens for step in steps] == [6, 2, 2, 1]
    assert [(row.prompt, row.generated) for row in rows] == [(3, 3), (3, 3), (1, 0)]


def test_a_call_has_its_size_at_most_and_the_oldest_items_go_first():
    assert calls(Calls(2), *items("a b c")) == [(0, "a b"), (7, "c")]


def test_a_window_ends_when_the_size_is_reached():
    three = [*items("a"), *items("b", 4 * MS), *items("c", 6 * MS)]
    assert calls(Calls(3, window=50 * MS), *three) == [(6, "a b c")]
    assert calls(Calls(4, window=50 * MS), *three) == [(50, "a b c")]


def test_a_window_ends_when_the_cost_is_reached():
    policy = Calls(9, window=50 * MS, cost=6)
    three = [*items("a", cost=3), *items("b", 4 * MS, cost=2), *items("c", 6 * MS)]
    assert calls(policy, *three) == [(6, "a b c")]
    assert calls(policy, *three[:2]) == [(50, "a b")], "another one may still come"
    assert calls(policy, *three[:2], *items("d", 7 * MS, cost=2)) == [(7, "a b"), (57, "d")]
    assert calls(policy, *items("e", cost=7)) == [(0, "e")]


def test_a_window_ends_when_the_cost_leaves_no_room_for_a_padded_item():
    policy = Calls(9, window=50 * MS, cost=11, bounds=(4, 8))
    padded = [*items("a", cost=3), *items("b", 4 * MS, cost=1), *items("c", 6 * MS, cost=5)]
    assert calls(policy, *padded) == [(4, "a b"), (17, "c")]
    assert calls(Calls(9, window=50 * MS, cost=12, bounds=(4,)), *padded[:2]) == [(50, "a b")]


def test_each_lane_has_a_window_of_its_own():
    both = [*items("a", lane="bulk"), *items("b", 10 * MS, lane="slow")]
    join = Calls(8, window=80 * MS, windows={"slow": 5 * MS})
    assert calls(join, *both) == [(15, "a b")]


def test_a_closing_engine_starts_a_call_before_its_window_ends():
    settings = Settings(64, 1 << 40, LANES, Policies(Calls(8, window=90 * MS), step_tokens=NEVER))
    clock = VirtualClock()
    inbox = TraceInbox(items("a"), clock)
    made = Engine(Scheduler(settings), PricedExecutor(STEP, clock), inbox, clock)
    while not made.scheduler.finished:
        made.step()
    assert clock.now() == 6 * MS


def test_a_call_keeps_to_its_cost_but_one_item_always_starts():
    mixed = [*items("a b", cost=3), *items("c", cost=9), *items("d", cost=2)]
    assert calls(Calls(8, cost=6), *mixed) == [(0, "a b"), (11, "c"), (25, "d")]


def test_a_length_class_is_a_call_of_its_own_padded_to_its_bound():
    mixed = [*items("a b", cost=3), *items("c", cost=9), *items("d", cost=8), *items("e", cost=20)]
    made = engine(Calls(8, bounds=(4, 10)), *mixed)
    while not made.scheduler.finished:
        made.step()
    steps, _ = made.scheduler.ledger.take()
    assert [(row.rows, row.width, row.padding_tokens) for row in steps][:-1] == [
        (2, 4, 2),
        (2, 10, 3),
        (1, 20, 0),
    ]


def test_length_classes_wait_for_their_own_windows():
    mixed = [*items("a", cost=3), *items("b", 20 * MS, cost=9), *items("c", 21 * MS, cost=9)]
    join = Calls(2, window=30 * MS, bounds=(4, 10))
    assert calls(join, *mixed) == [(21, "b c"), (46, "a")]


def test_the_earliest_deadline_goes_first_then_the_better_lane():
    some = [*items("a b", lane="bulk"), *items("c", lane="slow"), *items("d", lane="fast")]
    assert calls(Calls(1), *some) == [(0, "d"), (6, "c"), (12, "a"), (18, "b")]
    own = [*items("a", lane="slow"), *items("b", lane="bulk", end_by=50 * MS)]
    assert calls(Calls(1), *own) == [(0, "b"), (6, "a")]
    lanes = (Lane("bulk", priority=2), Lane("slow", priority=1))
    assert calls(Calls(1), *items("a"), *items("b", lane="slow"), lanes=lanes)[0] == (0, "b")


@pytest.mark.parametrize("size", [8, 4])
def test_a_window_ends_in_time_for_the_deadline(size):
    """The items are due within 30 ms, and a call of two takes 7."""
    made = calls(
        Calls(size, window=900 * MS),
        *items("v w", lane="slow"),
        *items("u", 4_000 * MS, lane="slow"),
        *items("a b", 5_000 * MS, lane="fast"),
    )
    ((at, ids),) = [each for each in made if each[0] >= 5_000]
    assert ids == "a b"
    assert 5_000 + 15 < at <= 5_000 + 30 - 7


def learned(*commands, size=8, **rest):
    """The calls after those that taught what a call costs."""
    known = [
        each
        for round in range(40)
        for each in [
            *items(f"p{round} q{round}", (2 * round) * 20 * MS),
            *items(f"r{round}", (2 * round + 1) * 20 * MS),
        ]
    ]
    at = 2_000
    made = calls(Calls(size, **rest), *known, *commands)
    return [(begun - at, ids) for begun, ids in made if begun >= at]


AT = 2_000 * MS


def test_a_call_is_cut_where_it_would_make_its_first_item_late():
    """A call of five takes 10 ms and the first item has 9.5 ms: the call has four at most."""
    some = [*items("a", AT, end_by=AT + 9 * MS + MS // 2), *items("b c d e f", AT)]
    (first, second) = learned(*some)
    assert first == (0, "a b c d")
    assert second == (9, "e f")


def test_an_item_that_is_late_already_goes_last_and_cuts_no_call():
    some = [*items("a", AT, end_by=AT + 3 * MS), *items("b c", AT, end_by=AT + 60 * MS)]
    made = learned(*some, *items("d", AT), size=3)
    assert made == [(0, "b c d")], "a expires while they run"


def test_items_that_are_all_late_are_served_all_the_same():
    """A lane's budget drops no item."""
    tight = (Lane("bulk", Budget(e2e=MS)),)
    assert calls(Calls(2), *items("a b c"), lanes=tight)[:2] == [(0, "a b"), (7, "c")]


def test_in_a_backlog_items_that_a_whole_call_makes_late_give_way():
    """A call of three takes 8 ms, one of two 7. If calls were cut for `a`, the line would grow."""
    some = [*items("a", AT, end_by=AT + 15 * MS // 2), *items("b c d", AT, end_by=AT + 99 * MS)]
    assert learned(*some, size=3)[0] == (0, "b c d")
    assert learned(*some[:3], size=3)[0] == (0, "a b"), "without a backlog it is cut for it"


class AllRanked(Calls):
    """Ranks every item at each call, also of lanes without any deadline."""

    def _front(self, line):
        return [*line.waiting, *line.relegated]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fast", "slow", "bulk", "night"]),
            st.integers(0, 60),  # when it comes, in milliseconds
            st.integers(1, 4),  # its cost
            st.sampled_from([0, 0, 0, 40]),  # its own deadline; 0: it has none
        ),
        max_size=40,
    ),
    st.integers(1, 5),
    st.sampled_from([6, NEVER]),
)
def test_of_a_lane_without_deadlines_only_the_first_items_are_ranked(asked, size, cost):
    lanes = *LANES, Lane("night", priority=2)
    commands = [
        item(f"{number}", at * MS, price, lane, **({"end_by": (at + ends) * MS} if ends else {}))
        for number, (lane, at, price, ends) in enumerate(asked)
    ]
    event(f"{len(asked) // 10} tens of items")
    found = calls(Calls(size, cost=cost), *commands, lanes=lanes)
    assert found == calls(AllRanked(size, cost=cost), *commands, lanes=lanes)


def test_a_full_call_is_decided_while_another_runs():
    join = Calls(2, ahead=True)
    made = engine(join, *items("a b c d e"), depth=2)
    made.step()
    made.step()
    assert made.scheduler.steps == 2, "the second is decided before the first is back"
    made.step()
    assert made.scheduler.steps == 2, "one item is no full call"
    assert calls(join, *items("a b c d e"), depth=2)[-1] == (14, "e")


@pytest.fixture
def running():
    """A scheduler that knows what calls take, with one call in flight, decided at AT."""
    settings = Settings(
        64, 1 << 40, LANES, Policies(Calls(4, ahead=True), step_tokens=NEVER), depth=2
    )
    made = Scheduler(settings)
    for at, ids in ((0, "v"), (100 * MS, "w x")):
        made.apply([command for _, command in items(ids, at)], at)
        batch = made.schedule(at)
        rows = len(batch.rows)
        made.commit(batch, Output(((),) * rows, took=BASE + EACH * rows), at + 9 * MS)
    made.apply([item("a", AT)[1]], AT)
    assert made.schedule(AT).rows
    return made


def test_a_call_is_decided_just_before_the_running_one_ends(running):
    """The running call takes 6 ms. The lead is LEAD, plus LEAD_EACH for a waiting item."""
    at = AT + BASE + EACH - LEAD
    assert running.schedule(AT + MS).wake_at == at, "nobody has come yet, but somebody may"
    running.apply([item("b", AT + MS)[1]], AT + MS)
    early = running.schedule(AT + MS)
    assert not early.rows and early.wake_at == at - LEAD_EACH
    assert len(running.schedule(early.wake_at).rows) == 1


def test_no_call_is_decided_ahead_without_items_or_beside_an_overdue_call(running):
    late = running.schedule(AT + BASE + EACH - LEAD)
    assert not late.rows and late.wake_at == NEVER
    running.apply([item("b", AT + MS)[1]], AT + MS)
    over = running.schedule(AT + BASE + EACH)
    assert not over.rows and over.wake_at == NEVER, "who comes until its end may still be with b"


def test_an_item_ends_as_computed_and_has_its_share_of_the_call():
    made = engine(Calls(4), *items("a b"), *items("c", cost=2))
    events = []
    while not made.scheduler.finished:
        events += made.step()
    assert {event.finish for event in events} == {Finish.COMPUTED}
    _, rows = made.scheduler.ledger.take()
    assert [row.nanoseconds for row in rows[:3]] == [9 * MS // 4, 9 * MS // 4, 9 * MS // 2]


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"size": 0}, "1 item or more"),
        ({"cost": 0}, "a cost of 1 or more"),
        ({"bounds": (4, 4)}, "positive and ascending"),
        ({"bounds": (0, 4)}, "positive and ascending"),
        ({"window": -1}, "must not be negative"),
        ({"windows": {"a": -1}}, "must not be negative"),
        ({"ahead": True, "bounds": (4,)}, "cannot be decided while another runs"),
    ],
)
def test_settings_of_calls_that_cannot_be_obeyed_are_refused(wrong, said):
    with pytest.raises(SettingError, match=said):
        Calls(**{"size": 2} | wrong)


def test_a_window_of_an_unknown_lane_is_refused():
    with pytest.raises(SettingError, match="a window names no lane"):
        Settings(8, lanes=LANES, policies=Policies(Calls(2, windows={"none": 1})))


def test_items_go_by_their_due_times_and_are_never_dropped_for_them():
    waiting = item("d", 1, due=40 * MS), item("c", 1, due=30 * MS), item("e", 1, due=3 * MS)
    assert calls(Calls(1), item("a"), item("b", 1), *waiting) == [
        (0, "a"),
        (6, "c"),
        (12, "d"),
        (18, "b"),
        (24, "e"),
    ]


def test_a_due_time_cuts_a_call_as_a_budget_does():
    warm = [*items("v w x y"), item("u", 50 * MS)]  # so that the cost is known
    asked = [item(each, 500 * MS, due=507 * MS) for each in "abc"]
    assert calls(Calls(4), *warm, *asked)[2:] == [(500, "a b"), (507, "c")]


def test_no_item_is_held_beyond_its_planned_end():
    warm = [*items("v w x y"), item("u", 50 * MS)]  # so that the cost is known: 5 ms and 1 an item
    policy = Calls(4, window=100 * MS)
    asked = [item(each, 500 * MS, planned=520 * MS, due=900 * MS) for each in "ab"]
    assert calls(policy, *warm, *asked)[-1] == (513, "a b"), "520 less the 7 of the call"
    late = [item(each, 500 * MS, planned=501 * MS, due=900 * MS) for each in "ab"]
    assert calls(policy, *warm, *late)[-1] == (500, "a b"), "its call is whole"


def test_items_that_would_be_dropped_before_the_call_ends_go_last():
    """All five items are late. Three of them would not be dropped before the call ends."""
    lost = [item(each, 100 * MS, due=101 * MS, end_by=107 * MS) for each in "ab"]
    late = [item(each, 100 * MS, due=102 * MS, end_by=160 * MS) for each in "cde"]
    assert calls(Calls(3), *items("v w"), *lost, *late)[1] == (100, "c d e")


@pytest.mark.parametrize(
    "ends, begun",
    [(62, [(50, "x y"), (57, "c d")]), (90, [(50, "a b x y"), (57, "c d")])],
)
def test_no_call_is_decided_ahead_for_items_that_would_be_dropped(ends, begun):
    """x and y run until 57. A call of a and b, which wait, would end at 64. Then c and d come."""
    commands = [
        *items("v w"),
        item("u", 20 * MS),  # so that the cost of calls is known
        *[item(each, 50 * MS, due=58 * MS) for each in "xy"],
        *[item(each, 50 * MS, end_by=ends * MS) for each in "ab"],
        *[item(each, 52 * MS, end_by=80 * MS) for each in "cd"],
    ]
    assert calls(Calls(2, ahead=True), *commands, depth=2)[2:4] == begun
