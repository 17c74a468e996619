"""A lane keeps to the most that it may have, and that holds up no other lane."""

from contextlib import contextmanager
from unittest.mock import patch

import pytest

from headway.core.batch import Output, Want
from headway.core.commands import Add
from headway.core.lane import Lane, Share
from headway.core.planning.candidates import FAR
from headway.core.planning.plan import Plan
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.request import NEVER
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError
from tests.traces import ask

YOUNGEST = Youngest()
MANY = 200  # more misfits than a step considers


def made(*lanes, slots=4, blocks=64, preempt=YOUNGEST):
    policies = Policies(Continuous(slots), step_tokens=512, preempt=preempt)
    return Scheduler(Settings(blocks, 4, lanes, policies))


def step(scheduler, now):
    batch = scheduler.schedule(now)
    if not batch.rows:
        return scheduler.load(now)
    output = Output(tuple((9,) if row.want & Want.LAST else () for row in batch.rows))
    scheduler.commit(batch, output, now)
    scheduler.check()
    return scheduler.load(now)


def test_a_lane_at_its_slot_limit_holds_up_no_other_lane():
    scheduler = made(Lane("bulk", slots=Share(most=2)), Lane("chat"))
    adds = [Add(ask(f"b{i}", 3, 2, lane="bulk")) for i in range(MANY)]
    scheduler.apply([*adds, Add(ask("c", 3, 40, lane="chat"))], 0)
    for now in range(100):
        lanes = step(scheduler, now).lanes
        assert lanes["bulk"].running <= 2 and lanes["chat"].waiting == 0
        scheduler.apply([Add(ask(f"c{now}", 3, 1, lane="chat"))], now)
    assert lanes["bulk"].waiting == MANY / 2, "two end in two steps"


@contextmanager
def tries():
    """Counts how often a waiting sequence is tried."""
    with patch.object(Plan, "_try_to_join", autospec=True, side_effect=Plan._try_to_join) as tried:
        yield tried


def flooded(**share):
    """Two requests of bulk run, and many wait: the lane is limited."""
    scheduler = made(Lane("bulk", **share), Lane("chat"), slots=8)
    scheduler.apply([Add(ask(f"b{i}", 3, 2, lane="bulk")) for i in range(MANY)], 0)
    step(scheduler, 0)
    assert scheduler.load(0).lanes["bulk"].running == 2
    return scheduler


LIMITS = [{"slots": Share(most=2)}, {"blocks": Share(most=2)}, {"step_tokens": Share(most=2)}]


@pytest.mark.parametrize("share", LIMITS, ids=["slots", "blocks", "step_tokens"])
def test_the_line_of_a_lane_at_its_limit_is_not_tried(share):
    scheduler = flooded(**share)
    scheduler.apply([Add(ask("c", 3, 2, lane="chat"))], 0)
    with tries() as tried:
        assert step(scheduler, 1).lanes["chat"].waiting == 0
    assert [sequence.request.id for (_, sequence), _ in tried.call_args_list] == ["c"]


@pytest.mark.parametrize("share", LIMITS[:2], ids=["slots", "blocks"])
def test_the_rest_of_a_line_is_not_tried_once_its_lane_is_full(share):
    scheduler = flooded(**share)
    step(scheduler, 1)
    assert scheduler.load(1).lanes["bulk"].running == 0, "both have ended"
    scheduler.apply([Add(ask("c", 3, 2, lane="chat"))], 1)
    with tries() as tried:
        assert step(scheduler, 2).lanes["chat"].waiting == 0
    names = [sequence.request.id for (_, sequence), _ in tried.call_args_list]
    assert names == ["b2", "b3", "b4", "c"], "b4 finds the lane full"


@pytest.mark.parametrize("more", [0, 1])
def test_of_a_line_that_lacks_blocks_of_its_lane_a_step_looks_no_further_than_far(more):
    scheduler = made(Lane("bulk", blocks=Share(most=4)), Lane("chat"), slots=8)
    scheduler.apply([Add(ask("a", 8, 8, lane="bulk"))], 0)
    step(scheduler, 0)
    adds = [Add(ask(f"b{i}", 5, 2, lane="bulk")) for i in range(FAR - 1 + more)]
    small = Add(ask("small", 3, 1, lane="bulk"))
    scheduler.apply([*adds, small, Add(ask("c", 3, 2, lane="chat"))], 0)
    with tries() as tried:
        lanes = step(scheduler, 1).lanes
    assert tried.call_count == FAR + 1, "and c"
    assert lanes["chat"].waiting == 0 and lanes["bulk"].waiting == FAR - 1 + 2 * more
    assert len(scheduler.ledger.requests) == 1 - more, "small has ended"


@pytest.mark.parametrize("preempt", [YOUNGEST, ByLane()])
def test_a_lane_at_its_block_limit_preempts_its_own_sequences_and_all_end(preempt):
    lanes = Lane("bulk", blocks=Share(most=5)), Lane("chat")
    scheduler = made(*lanes, preempt=preempt)
    adds = [Add(ask(f"b{i}", (i,) * 4, 12, lane="bulk")) for i in range(3)]
    scheduler.apply([Add(ask("c", 4, 30, lane="chat")), *adds], 0)
    for now in range(80):
        load = step(scheduler, now)
        assert load.lanes["bulk"].blocks <= 5
    rows = {row.id: row for row in scheduler.ledger.requests}
    assert {id: row.generated for id, row in rows.items()} == {
        "c": 30,
        "b0": 12,
        "b1": 12,
        "b2": 12,
    }
    assert rows["c"].preemptions == rows["b0"].preemptions == 0
    assert load.preemptions == rows["b1"].preemptions + rows["b2"].preemptions > 0


def test_the_oldest_of_a_lane_keeps_its_blocks_even_where_the_last_victim_is_spared():
    scheduler = made(Lane("bulk", blocks=Share(most=2)), Lane("chat"))
    adds = [Add(ask(f"b{i}", (i,) * 4, 4, lane="bulk")) for i in range(2)]
    scheduler.apply([Add(ask("c", 4, 30, lane="chat")), *adds], 0)
    step(scheduler, 0)
    scheduler.roster.last_victim = 2
    step(scheduler, 1)
    assert list(scheduler.roster.running) == [0, 1]


def test_a_lane_whose_only_victim_is_in_flight_grows_in_a_later_step():
    scheduler = made(Lane("bulk", blocks=Share(most=2)))
    scheduler.apply([Add(ask("a", 4, 4, lane="bulk"))], 0)
    first = scheduler.schedule(0)
    scheduler.apply([Add(ask("b", (7,) * 4, 4, lane="bulk"))], 0)
    second = scheduler.schedule(0)
    scheduler.commit(first, Output(((9,),)), 1)
    assert scheduler.schedule(1).rows == (), "a lacks a block, and b cannot be preempted"
    scheduler.commit(second, Output(((9,),)), 2)
    scheduler.check()
    assert [row.sequence for row in scheduler.schedule(2).rows] == [0]
    assert scheduler.roster.preemptions == 1
    scheduler.check()


def test_leasts_above_the_total_are_refused_with_the_names_of_their_lanes():
    lanes = Lane("a", slots=Share(3)), Lane("b"), Lane("c", slots=Share(2, 4))
    with pytest.raises(SettingError) as caught:
        made(*lanes)
    assert str(caught.value) == "the lanes keep 5 slots at least (a 3 and c 2), and there are 4"
    with pytest.raises(SettingError, match="lane 'a' has no blocks: nothing of it could ever run"):
        made(Lane("a", blocks=Share(0, 0)))
    with pytest.raises(SettingError, match="from 3 to 2: 0 <= least <= most"):
        Share(3, 2)
    assert Share().most == NEVER
