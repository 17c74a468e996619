"""Accounts of time sum exactly, and each metric is defined once."""

from dataclasses import replace

from headway.core.batch import Output
from headway.core.commands import Add
from headway.core.lane import Budget, Lane
from headway.core.ledger import RequestRow
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Static
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from tests.traces import ask, make


def test_the_shares_of_a_step_sum_to_it_with_the_remainder_in_the_first_row():
    scheduler = make(8, Policies(join=Static(2)))
    scheduler.apply([Add(ask("a", 4, 1)), Add(ask("b", (5, 6), 1))], 0)
    scheduler.commit(scheduler.schedule(0), Output(((9,), (9,))), 103)
    assert [row.nanoseconds for row in scheduler.ledger.requests] == [4 * 12 + 7, 2 * 12]
    assert scheduler.ledger.wasted == 2 * 12, "b was padded by two tokens"
    assert scheduler.ledger.spent == 103


def test_the_metrics_of_a_request_follow_their_definitions():
    row = RequestRow(
        id="a",
        lane="chat",
        budget=Budget(ttft=20, tpot=5, e2e=50, queue=10),
        finish=Finish.LENGTH,
        arrived=100,
        first_scheduled=110,
        first_token=120,
        last_token=135,
        finished=135,
        prompt=7,
        generated=4,
        cached=0,
        discarded=0,
        preemptions=0,
        nanoseconds=9,
    )
    assert (row.queue, row.ttft, row.tpot, row.e2e, row.good) == (10, 20, 5, 35, True)
    assert not replace(row, first_token=121).good, "a nanosecond late"
    assert not replace(row, finish=Finish.CANCELLED).good
    taken_back = replace(row, generated=0, finish=Finish.STOP, first_token=121, last_token=121)
    never = replace(taken_back, first_token=NEVER, last_token=NEVER)
    assert taken_back.good and replace(never, finish=Finish.COMPUTED).good and not never.good
    assert replace(row, generated=1).tpot == 0
    refused = replace(row, finish=Finish.REFUSED, first_scheduled=NEVER, first_token=NEVER)
    assert refused.queue == refused.ttft == NEVER


def test_the_time_of_overlapping_steps_is_not_counted_twice():
    scheduler = make(8, Policies(chunk=Fixed(2)))
    scheduler.apply([Add(ask("a", 4, 1))], 0)
    first, second = scheduler.schedule(0), scheduler.schedule(3)
    scheduler.commit(first, Output(((),)), 10)
    scheduler.commit(second, Output(((9,),)), 15)
    assert [(row.began, row.nanoseconds) for row in scheduler.ledger.steps] == [(0, 10), (10, 5)]
    steps, requests = scheduler.ledger.take()
    assert (len(steps), requests[0].nanoseconds) == (2, 15)
    assert scheduler.ledger.take() == ([], [])
    scheduler.check()  # the sums outlive the rows


def test_a_row_has_its_lanes_budget_even_when_nobody_else_waits():
    lane = Lane(budget=Budget(ttft=1))
    scheduler = Scheduler(Settings(8, lanes=(lane,)))
    scheduler.apply([Add(ask("a", 4, 1))], 0)
    scheduler.commit(scheduler.schedule(0), Output(((9,),)), 10)
    (row,) = scheduler.ledger.requests
    assert (row.budget, row.good) == (lane.budget, False)
