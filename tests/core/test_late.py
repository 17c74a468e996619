"""Who cannot make its first token any more: it goes behind the others, or ends at once."""

from unittest.mock import patch

from headway.core.batch import Event, Output, Want
from headway.core.commands import Add
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.policies.relegate import Hopeless
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.sequence import RELEGATED, TIMED
from headway.core.settings import Settings
from tests.traces import ask

COST = StepCost.of(0, per_token=10, per_pair=0)  # nanoseconds


def made(refuses_late):
    """One slot, chunks of four tokens, and first tokens within 100 ns."""
    lane = Lane("default", Budget(ttft=100), refuses_late=refuses_late)
    policies = Policies(Continuous(1), chunk=Fixed(4), step_tokens=8, relegate=Hopeless())
    return Scheduler(Settings(8, 4, (lane,), policies, cost=COST))


def step(scheduler, now):
    """Ends at this time."""
    batch = scheduler.schedule(now)
    if not batch.rows:
        return []
    output = Output(tuple((9,) if row.want & Want.LAST else () for row in batch.rows))
    events = scheduler.commit(batch, output, now)
    scheduler.check()
    return events


def test_who_waits_and_cannot_be_in_time_is_told_once_and_served_behind_the_others():
    scheduler = made(refuses_late=False)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 0)
    assert scheduler.apply([], 20) == [], "its 80 ns end in time"
    assert scheduler.apply([Add(ask("hopeful", 2, 1, arrived=21))], 21) == [
        Event("late", relegated=True)
    ]
    assert scheduler.apply([], 22) == []
    line = scheduler.load(22).lanes["default"]
    assert (line.waiting, line.relegated, line.relegated_tokens) == (2, 1, 8)
    ended = []
    for now in range(23, 30):
        ended += [event.id for event in step(scheduler, now) if event.finish]
    assert ended == ["runs", "hopeful", "late"]
    rows = {row.id: row.relegated for row in scheduler.ledger.requests}
    assert rows == {"runs": False, "hopeful": False, "late": True}


def test_where_the_lane_refuses_them_those_that_wait_end_at_once():
    scheduler = made(refuses_late=True)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 0)
    words = "its first token cannot come within 1e-07 s of its arrival any more"
    assert scheduler.apply([], 21) == [Event("late", (), Finish.REFUSED, words)]
    scheduler.check()
    assert scheduler.roster.waiting == 0
    (row,) = scheduler.ledger.requests
    assert (row.finish, row.relegated, row.good) == (Finish.REFUSED, False, False)


def test_whose_prompt_is_being_computed_is_relegated_even_there():
    scheduler = made(refuses_late=True)
    scheduler.apply([Add(ask("a", 8, 1))], 0)
    step(scheduler, 50)
    assert scheduler.apply([], 61) == [Event("a", relegated=True)]
    assert step(scheduler, 70) == [Event("a", (9,), Finish.LENGTH)]
    assert scheduler.ledger.requests[0].relegated


def test_whose_first_token_came_in_time_all_the_same_is_in_time_again():
    scheduler = made(refuses_late=False)
    scheduler.apply([Add(ask("a", 8, 3))], 0)
    step(scheduler, 50)
    assert scheduler.apply([], 61) == [Event("a", relegated=True)]
    (sequence,) = scheduler.roster.running.values()
    step(scheduler, 100)
    assert sequence.tier == RELEGATED
    assert scheduler.apply([], 100) == [] and sequence.tier == TIMED
    step(scheduler, 110)
    step(scheduler, 120)
    (row,) = scheduler.ledger.requests
    assert row.good and row.relegated, "it was, at some time"


def test_who_waits_is_in_time_again_when_steps_have_become_faster():
    scheduler = made(refuses_late=False)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 0)
    scheduler.apply([], 21)
    line = scheduler.roster.lines["default"]
    (late,) = line.relegated
    with patch.object(scheduler.estimates, "_drift", 980_000):
        assert scheduler.apply([], 21) == []
    assert (line.waiting, line.relegated, line.relegated_tokens) == ([late], [], 0)
    assert scheduler.apply([], 22) == [Event("late", relegated=True)], "and slower"
    scheduler.check()


def test_what_is_cached_needs_no_time():
    """A prompt's first block is computed by another while it waits."""
    scheduler = made(refuses_late=False)
    scheduler.apply([Add(ask("runs", 4, 4)), Add(ask("same", 8, 1))], 0)
    same = scheduler.roster.by_id["same"]
    assert same.hit == 0
    step(scheduler, 0)
    assert scheduler.apply([], 60) == [], "four tokens are left to compute"
    assert (same.hit, same.tier) == (4, TIMED)
    assert scheduler.apply([Add(ask("later", 8, 1, arrived=60))], 60) == []
    assert scheduler.roster.by_id["later"].hit == 4
    assert scheduler.apply([], 61) == [Event("same", relegated=True)]
    while scheduler.roster.by_id:
        step(scheduler, 62)
    assert [row.cached for row in scheduler.ledger.requests] == [0, 4, 4]
