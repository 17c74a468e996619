"""Late requests leave before the next step, in a stated order, with the limit that they missed."""

from io import StringIO

import pytest

from headway.core.batch import Event, Output, Want
from headway.core.commands import Add, Cancel, Close
from headway.core.cost.lengths import ENOUGH, LEARNED
from headway.core.deadlines import MAX_STALE, Deadlines
from headway.core.lane import Budget
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.sequences.sequence import Sequence
from headway.engine import Engine
from headway.executor.fake import FakeExecutor
from headway.journal import journal
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from headway.sim.replay import replay
from tests.traces import BLOCK, COST, MS, ask, make


def run(scheduler, now=0):
    batch = scheduler.schedule(now)
    tokens = tuple((9,) if row.want & Want.LAST else () for row in batch.rows)
    return scheduler.commit(batch, Output(tokens), now)


def ids(events):
    return [event.id for event in events]


def test_a_lanes_queue_limit_sets_when_a_request_must_start():
    assert Budget(queue=5).start_by(100) == 105
    assert Budget().start_by(100) == NEVER


def test_requests_may_start_and_end_up_to_their_deadlines():
    scheduler = make(8, Policies(Continuous(1)))
    scheduler.apply([Add(ask("a", 4, 9, end_by=90)), Add(ask("b", 4, 9, start_by=50))], 0)
    run(scheduler)
    assert scheduler.apply([], 50) == [], "it could start in this step"
    late = scheduler.apply([], 51)
    assert late == [Event("b", (), Finish.EXPIRED, "not started within 5e-08 s of its arrival")]
    assert scheduler.apply([], 89) == []
    assert scheduler.pool.num_free == 7
    late = scheduler.apply([], 90)
    assert late == [Event("a", (), Finish.EXPIRED, "not ended within 9e-08 s of its arrival")]
    assert scheduler.pool.num_free == 8, "at once"
    scheduler.check()
    assert [row.finish for row in scheduler.ledger.requests] == [Finish.EXPIRED] * 2


@pytest.mark.parametrize("leads", [True, False])
def test_a_choice_that_shares_a_prompt_has_started_with_it(leads):
    """The prompt takes longer than the limit; once begun, it is finished for all choices."""
    scheduler = make(8, Policies(Continuous(2), chunk=Fixed(2), step_tokens=2))
    first = ask("a", 9, 4, start_by=50)
    other = ask("other", 9, 4)
    scheduler.apply([Add(each) for each in ((first, first.sibling("b", 1)) if leads else ())], 0)
    scheduler.apply([Add(other)], 0)
    run(scheduler)
    if not leads:
        scheduler.apply([Add(first), Add(first.sibling("b", 1))], 1)
    ended = scheduler.apply([], 51)
    assert ids(ended) == ([] if leads else ["a", "b"])
    now = 60
    while scheduler.roster.by_id:
        run(scheduler, now)
        now += 2
    queues = {row.id: row.queue for row in scheduler.ledger.requests}
    assert not leads or queues["b"] == queues["a"] == 0, "it waits no longer than the first"
    scheduler.check()


def test_expired_requests_leave_in_order_of_deadline_then_arrival():
    scheduler = make(8, Policies(Continuous(1)))
    asked = [
        ask("first", 4, 9, end_by=40),
        ask("b", 4, 9, start_by=29, end_by=30),
        ask("c", 4, 9, end_by=30),
        ask("d", 4, 9, start_by=20),
        ask("e", 4, 9, start_by=39),
    ]
    scheduler.apply([Add(each) for each in asked], 0)
    run(scheduler)
    events = scheduler.apply([], 100)
    assert ids(events) == ["d", "b", "c", "first", "e"]
    assert events[1].error.startswith("not started"), (
        "of two limits at one time, that for the start"
    )


def test_commands_are_applied_before_deadlines():
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 4, 9, end_by=10)), Add(ask("b", 4, 9, end_by=10))], 0)
    events = scheduler.apply([Cancel("b"), Add(ask("c", 4, 9, start_by=3))], 20)
    assert [(each.id, each.finish) for each in events] == [
        ("b", Finish.CANCELLED),
        ("c", Finish.EXPIRED),
        ("a", Finish.EXPIRED),
    ]


def test_a_request_that_started_in_time_is_not_late_after_a_preemption():
    scheduler = make(4)
    scheduler.apply([Add(ask("a", 8, 8)), Add(ask("b", (5,) * 7, 9, start_by=0))], 0)
    run(scheduler)
    batch = scheduler.schedule(10)
    assert batch.ended == (1,), "b's blocks were taken"
    assert scheduler.apply([], 20) == []


def test_blocks_of_a_request_that_expires_in_flight_are_free_after_the_step():
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 4, 9, end_by=10))], 0)
    batch = scheduler.schedule(0)
    assert ids(scheduler.apply([], 10)) == ["a"] and scheduler.pool.num_free == 7
    assert scheduler.commit(batch, Output(((9,),)), 12) == []
    assert scheduler.pool.num_free == 8
    scheduler.check()


def test_a_finished_member_of_a_group_answered_together_can_still_expire():
    scheduler = make(16, Policies(join=Static(2, together=True)))
    asked = [ask("a", 4, 1, end_by=10), ask("b", 4, 3, end_by=40)]
    scheduler.apply([Add(each) for each in asked], 0)
    assert run(scheduler) == []
    assert ids(scheduler.apply([], 10)) == ["a"], "its caller has heard nothing"
    scheduler.check()
    run(scheduler)
    assert ids(scheduler.apply([], 40)) == ["b"]
    scheduler.check()


def test_an_idle_engine_wakes_for_a_deadline_and_the_journal_keeps_it():
    scheduler, clock, file = (
        make(8, Policies(join=Dynamic(2, 200 * MS))),
        VirtualClock(),
        StringIO(),
    )
    journal.begin(scheduler.settings, file)
    requests = [ask("a", 6, 2, start_by=30 * MS), ask("b", 4, 2, arrived=900 * MS)]
    inbox = TraceInbox([(each.arrived, Add(each)) for each in requests], clock)
    priced = PricedExecutor(COST, clock, FakeExecutor(8, BLOCK))
    engine = Engine(scheduler, priced, inbox, clock, lambda record: journal.write(record, file))
    events = []
    while not scheduler.finished:
        events += engine.step()
    assert events[0].finish is Finish.EXPIRED
    assert scheduler.ledger.requests[0].finished == 30 * MS + 1, "and not when b came"
    again, told = replay(*journal.read(file.getvalue().splitlines()))
    assert again.ledger.requests == scheduler.ledger.requests and told == events


def test_an_answer_cut_off_by_its_deadline_counts_as_a_longer_one():
    """Else only short answers would be known, and the next one would begin too late as well."""
    scheduler = make(9_999, Policies(Continuous(1)))
    for i in range(ENOUGH):
        scheduler.apply([Add(ask(f"r{i}", 3, 90, i, end_by=10 * i + 5))], 10 * i)
        for now in range(4):
            run(scheduler, 10 * i + now)
        assert [e.finish for e in scheduler.apply([], 10 * i + 6)] == [Finish.EXPIRED]
    waits = Sequence(99, ask("next", 3, 90), [1, 2, 3])
    assert scheduler.estimates.lengths.left(waits, 0.9) == (8, LEARNED)


@pytest.mark.parametrize("limit", [{"end_by": 50}, {"start_by": 50}])
def test_a_closing_engine_does_not_wait_for_deadlines_of_ended_requests(limit):
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 4, 1, **limit)), Close()], 0)
    run(scheduler)
    assert scheduler.finished and scheduler.roster.deadlines.next == NEVER


def test_long_deadlines_hold_no_memory_of_ended_requests():
    deadlines, most = Deadlines(), 0
    alive = Sequence(0, ask("alive", 1, 1, end_by=7), [])
    deadlines.add(alive)
    for number in range(1, 1_000):
        sequence = Sequence(number, ask("", 1, 1, end_by=10**15), [])
        deadlines.add(sequence)
        sequence.ended = True
        most = max(most, len(deadlines._heap))
    assert most <= MAX_STALE + 2
    assert deadlines.next == 7 and deadlines.missed(6) is None
    assert deadlines.missed(7).sequence is alive and deadlines.missed(10**16) is None
