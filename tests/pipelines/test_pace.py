"""How long a stage takes at present, and how a deadline is split by these times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.ledger import StepRow
from headway.core.request import NEVER, Finish
from headway.errors import SettingError
from headway.pipelines.graph import stage
from headway.pipelines.pace import Pace
from headway.pipelines.split import Entry, Fixed, Learned, Need, Undivided
from tests.pipelines.rig import Rig, ended_row, f

MS = 1_000_000


def call(number, items, nanoseconds, cells=1):
    return StepRow(number, 0, nanoseconds, 0, items, items * cells, 0, 0, 0, 0, 0, 9)


def paced(calls, **rest):
    pace = Pace(8, 1_000, **rest)
    for number, (items, nanoseconds) in enumerate(calls, 1):
        pace.enter(items)
        for _ in range(items):
            pace.leave(None, call(number, items, nanoseconds))
    return pace


def test_a_call_is_seen_once_however_many_items_it_had():
    pace = paced([(1, 6 * MS), (5, 10 * MS), (8, 13 * MS)])
    assert pace.cost.line == pytest.approx((5 * MS, MS), rel=1e-6)
    assert pace.inside == 0


def test_a_stage_needs_the_time_of_its_mean_call_and_of_the_items_before_it():
    pace = paced([(4, 9 * MS), (4, 9 * MS), (1, 6 * MS), (8, 13 * MS)] * 50)
    assert pace.items == pytest.approx(4, abs=1)
    before = pace.need
    assert before.service == pytest.approx((5 + pace.items) * MS, rel=0.1)
    for _ in range(200):
        pace.enter(1)
    assert pace.level > 50 and pace.need.queue > 10 * before.queue


def test_a_new_stage_has_no_estimates():
    assert Pace(8, 10).need == Need(0, 0)
    assert Pace(8, 10, calls=False).need == Need(0, 0)
    assert Pace(8, 10).drained(0.0) == 0.0


def test_a_stage_without_calls_learns_from_whole_answers():
    rig = Rig(stage(f))
    rig.begin(0)
    (work,) = rig.ports[0].held
    pace = Pace(4, 1_000, calls=False)
    pace.enter(1)
    pace.leave(ended_row(work, Finish.CANCELLED, 0, 99), None)
    assert not pace.cost.is_known
    pace.enter(1)
    pace.leave(ended_row(work, Finish.STOP, 10, 50), None)
    assert pace.need == Need(40, 0, 40)
    for _ in range(300):
        pace.enter(1)
    assert pace.need.queue > 0


def test_a_line_drains_at_the_known_rate_or_else_at_that_of_its_calls():
    pace = paced([(8, 13 * MS)] * 10)
    pace.inside = 16
    assert pace.drained(8.0) == 2.0
    assert pace.drained(0.0) == pytest.approx(16 * 13e-3 / 8), "by its calls, if nobody knows"


ENTRY = Entry(arrived=0, now=100, end_by=1_100, stage=1)
NEEDS = [Need(50, 0, 10), Need(100, 200, 40), Need(100, 0, 20)]


def test_a_stage_gets_the_time_of_one_call_and_the_last_one_all_that_is_left():
    assert Learned().planned(ENTRY, NEEDS) == 140
    assert Learned().planned(ENTRY._replace(stage=2), NEEDS) == 1_100
    assert Learned().planned(ENTRY, [Need()] * 3) == 100, "it starts at once while nothing is known"


def test_too_little_time_is_split_in_proportion_to_the_needs():
    assert Learned().planned(ENTRY._replace(end_by=120), NEEDS) == 115, "three quarters of 20"


def test_a_slower_stage_gets_more_time():
    slower = [NEEDS[0], Need(400, 800, 160), NEEDS[2]]
    assert Learned().planned(ENTRY, slower) == 260


def test_a_result_is_due_when_the_deadline_leaves_just_enough_for_the_other_stages():
    needs = [Need(50, 0, 10, 10), Need(100, 200, 40, 40), Need(100, 500, 20, 25)]
    assert Learned().due(ENTRY, needs) == 1_100 - 45, "whoever else waits there goes later"
    assert Learned().due(ENTRY._replace(stage=0), needs) == 1_100 - 45 - 80
    assert Learned().due(ENTRY._replace(stage=2), needs) == 1_100
    assert Learned().due(ENTRY._replace(end_by=NEVER), needs) == NEVER


def test_fixed_and_undivided_splits_have_one_time_for_planned_and_due():
    for split, due in ((Fixed((0.1, 0.6, 0.3)), 770), (Undivided(), 1_100)):
        assert split.due(ENTRY, NEEDS) == split.planned(ENTRY, NEEDS) == due


def test_a_stage_needs_several_calls_for_a_workflow_of_many_items():
    pace = paced([(2, 7 * MS), (4, 9 * MS)] * 20)  # 5 ms a call and 1 ms an item
    for width, calls in ((3, 1), (12, 2)):
        for _ in range(400):
            pace.enter(width)
        alone = pytest.approx((5 * calls + width) * MS, rel=1e-4)
        assert pace.need.alone == pace.need.behind == alone


@given(
    st.integers(0, 10**12),
    st.integers(-(10**10), 10**10),
    st.lists(st.builds(Need, *[st.integers(0, 10**10)] * 3), min_size=1),
)
def test_the_planned_time_of_a_stage_lies_between_now_and_the_deadline(now, left, needs):
    for at in range(len(needs)):
        due = Learned().planned(Entry(0, now, now + left, at), needs)
        assert now <= due <= max(now, now + left)
    assert due == max(now, now + left), "the last stage may take all that is left"
    assert Learned().planned(Entry(0, now, NEVER, 0), needs) == NEVER


@pytest.mark.parametrize("shares", [(), (0.5,), (1.5, -0.5), (0.0, 1.0)])
def test_invalid_shares_of_a_split_are_refused(shares):
    with pytest.raises(SettingError, match="positive and sum to 1"):
        Fixed(shares)


def test_a_list_longer_than_the_line_is_let_in_if_nothing_waits():
    pace = Pace(4, max_waiting=2)
    pace.width = 9.0
    assert not pace.is_full
    pace.enter(1)
    assert pace.is_full
