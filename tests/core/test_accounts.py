"""Where each request's time went: the stages sum to it, and name the rule that it waited under."""

from hypothesis import event, given, settings

from headway.core.accounts.accounts import Accounts
from headway.core.lane import Lane
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate
from tests.traces import BLOCK, COST, MS, cases, spy
from tests.traces import run as run_case

ONE = (Lane(),)


def explained(requests, policies, blocks=64, lanes=ONE, more=(), cost=None):
    """Each request's stages in milliseconds and its row, by id. A step takes 10 ms, and 1 ms a
    token."""
    known = {"cost": cost} if cost else {}
    scheduler = Scheduler(Settings(blocks, BLOCK, lanes, policies, **known))
    scheduler.accounts = Accounts(scheduler.roster)
    timed = sorted([*arrivals(requests), *more], key=lambda pair: pair[0])
    simulate(scheduler, timed, COST, spy(blocks))
    rows = {row.id: row for row in scheduler.ledger.requests}
    found = {each.id: each for each in scheduler.accounts.take()}
    for id, each in found.items():
        assert each.total == rows[id].finished - each.taken_in
    stages = {id: {name: ns / MS for name, ns in each.stages} for id, each in found.items()}
    return stages, found


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_stages_of_every_request_sum_to_its_time(case):
    scheduler = run_case(case).scheduler
    rows = {row.id: row for row in scheduler.ledger.requests}
    found = scheduler.accounts.take()
    assert {each.id for each in found} == {
        row.id for row in rows.values() if row.finish is not Finish.REFUSED
    } or any(row.finish is Finish.REFUSED for row in rows.values())
    for each in found:
        row, stages = rows[each.id], dict(each.stages)
        assert each.total == row.finished - each.taken_in
        assert min(stages.values(), default=1) > 0, "no stage is negative"
        own = stages.get("prefill.own", 0) + stages.get("decode.own", 0)
        assert own == row.nanoseconds
        assert "preempted" not in stages or row.preemptions
        for name in stages:
            event(name)
