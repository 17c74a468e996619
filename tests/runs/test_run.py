"""One strategy on one workload: scheduled arrivals, a limit, and one executor for many runs."""

from dataclasses import replace

import pytest

from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Static
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish, Request
from headway.executor.fake import FakeExecutor
from headway.runs.run import Run
from tests.commands.testbeds import TEXT, fake_testbed

MS = 1_000_000
LANES = [Lane("chat")]
FLAT = StepCost.of(10 * MS, per_token=0, per_pair=0)


def requests(count, every=0, answer=4):
    return [
        Request(f"r{i}", tuple(TEXT[40 * i : 40 * i + 20]), answer, i * every, "chat")
        for i in range(count)
    ]


def test_times_are_counted_from_the_beginning_of_the_run():
    machine = fake_testbed(cost=FLAT)
    machine.clock.advance_to(77 * MS)
    outcome = Run(machine, Policies(), LANES, requests(2, every=25 * MS)).serve()
    assert [(row.arrived // MS, row.ttft // MS) for row in outcome.requests] == [(0, 10), (25, 15)]
    assert outcome.steps[0].began == 0 and outcome.nanoseconds == 70 * MS
    assert outcome.offered == {"chat": 2} and outcome.complete


def test_promised_times_are_counted_from_the_beginning_of_the_run():
    machine = replace(fake_testbed(cost=FLAT), cost=FLAT)
    machine.clock.advance_to(77 * MS)
    outcome = Run(machine, Policies(), LANES, requests(2, every=25 * MS)).serve()
    assert [row.first_error for row in outcome.requests] == [0, 0]
    assert all(row.promised_end < 1_000 * MS for row in outcome.requests)


def test_requests_unfinished_at_the_limit_are_cancelled_and_stay_in_the_ledger():
    run = Run(
        fake_testbed(cost=FLAT), Policies(join=Continuous(1)), LANES, requests(3), limit=65 * MS
    )
    outcome = run.serve()
    assert [row.finish for row in outcome.requests] == [
        Finish.LENGTH,
        Finish.CANCELLED,  # it was running
        Finish.CANCELLED,  # it was still waiting
    ]
    assert [row.finished // MS for row in outcome.requests] == [40, 70, 70]
    assert outcome.requests[2].first_scheduled == NEVER == outcome.requests[2].ttft
    run.scheduler.check()


def test_a_static_group_starts_when_no_more_requests_will_come():
    outcome = Run(
        fake_testbed(cost=FLAT), Policies(join=Static(16)), LANES, requests(3, 50 * MS)
    ).serve()
    assert [row.first_scheduled // MS for row in outcome.requests] == [100, 100, 100]


def test_one_executor_serves_run_after_run():
    executor = FakeExecutor(2_048, 16)
    machine = fake_testbed(executor=executor)
    for policies in (Policies(join=Static(2)), Policies(chunk=Fixed(7)), Policies()):
        outcome = Run(machine, policies, LANES, requests(5, 5 * MS)).serve()
        assert {row.finish for row in outcome.requests} == {Finish.LENGTH}
    assert len(executor.tables) < 5, "the sequences of earlier runs were dropped"


def test_one_executor_serves_another_run_after_an_interrupted_one():
    executor = FakeExecutor(2_048, 16)
    machine = fake_testbed(executor=executor)
    run = Run(machine, Policies(), LANES, requests(5, 5 * MS))

    def impatient(progress):
        if progress.ended == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.serve(impatient)
    left = run.outcome()
    assert not left.complete and len(left.requests) == 2 and left.offered == {"chat": 5}
    again = Run(machine, Policies(), LANES, requests(5, 5 * MS)).serve()
    assert again.complete and len(again.requests) == 5


def outcomes(lane, asked, enforce=True, slots=1, **more):
    policies, rules = Policies(Continuous(slots)), {"enforce": enforce, **more}
    run = Run(fake_testbed(cost=FLAT), policies, [lane], asked, **rules)
    rows = run.serve().requests
    run.scheduler.check()
    return {row.id: (row.finish, row.finished // MS) for row in rows}


def test_late_requests_are_dropped_only_if_the_limits_are_enforced():
    """Answers take 40 ms each, one after the other. The third would begin at 80 ms."""
    lane = Lane("chat", Budget(queue=60 * MS))
    served = dict.fromkeys(("r0", "r1", "r2"), Finish.LENGTH)
    counted = outcomes(lane, requests(3), enforce=False)
    assert {id: finish for id, (finish, _) in counted.items()} == served
    assert outcomes(lane, requests(3)) == {
        "r0": (Finish.LENGTH, 40),
        "r1": (Finish.LENGTH, 80),
        "r2": (Finish.EXPIRED, 70),  # after the step in which its queue limit passed
    }
    ending = Lane("chat", Budget(e2e=60 * MS))
    assert outcomes(ending, requests(2)) == {
        "r0": (Finish.LENGTH, 40),
        "r1": (Finish.EXPIRED, 60),
    }


def test_a_request_ends_the_one_that_it_supersedes_if_that_is_enforced():
    """Answers take 40 ms each, one after the other. r1 comes while r0 runs, r2 while r1 waits, and
    r3 after r2 has ended."""
    lane, asked = Lane("chat"), requests(3, every=15 * MS)
    asked += [replace(requests(1)[0], id="r3", arrived=100 * MS)]
    mine = {"keys": dict.fromkeys(("r0", "r1", "r2", "r3"), "mine")}
    assert outcomes(lane, asked, **mine) == {
        "r0": (Finish.CANCELLED, 20),  # after the step in which r1 came
        "r1": (Finish.CANCELLED, 30),
        "r2": (Finish.LENGTH, 70),
        "r3": (Finish.LENGTH, 140),
    }
    others = outcomes(lane, asked, keys={f"r{i}": i for i in range(4)})
    counted = outcomes(lane, asked, enforce=False, **mine)
    assert others == counted
    assert {finish for finish, _ in counted.values()} == {Finish.LENGTH}


def test_only_an_admitted_request_ends_the_one_that_it_supersedes():
    lane, asked = Lane("chat", Budget(queue=100 * MS)), requests(20, every=10 * MS)
    found = outcomes(lane, asked)
    refused = [id for id, (finish, _) in found.items() if finish is Finish.REFUSED]
    assert refused[0] == "r4" and found["r3"] == (Finish.LENGTH, 160), "it waits when r4 comes"
    assert outcomes(lane, asked, keys={"r3": 1, "r4": 1}) == found
    later = next(id for id in found if int(id[1:]) > 4 and id not in refused)
    assert int(later[1:]) * 10 < 160
    again = outcomes(lane, asked, keys={"r3": 1, "r4": 1, later: 1})
    assert again["r3"][0] is Finish.CANCELLED and again["r4"][0] is Finish.REFUSED


def test_limits_count_from_each_arrival_and_from_the_runs_beginning():
    machine = fake_testbed(cost=FLAT)
    machine.clock.advance_to(500 * MS)
    lane = Lane("chat", Budget(queue=25 * MS))
    run = Run(machine, Policies(Continuous(1)), [lane], requests(3, every=30 * MS), enforce=True)
    finished = {row.id: (row.finish, row.finished // MS) for row in run.serve().requests}
    assert finished["r0"] == (Finish.LENGTH, 40) and finished["r1"] == (Finish.LENGTH, 80)
    assert finished["r2"] == (Finish.LENGTH, 120), "it waits from 60 to 80 ms"


def test_a_request_that_would_miss_its_queue_limit_is_refused_on_arrival():
    """A request ends every 40 ms, and one comes every 10 ms. The first ends set the drain rate."""
    lane = Lane("chat", Budget(queue=100 * MS))
    run = Run(
        fake_testbed(cost=FLAT),
        Policies(Continuous(1)),
        [lane],
        requests(40, 10 * MS),
        enforce=True,
    )
    rows = {row.id: row for row in run.serve().requests}
    assert len(rows) == 40
    ends = {finish: [r for r in rows.values() if r.finish is finish] for finish in Finish}
    assert len(ends[Finish.REFUSED]) > 10
    for row in ends[Finish.REFUSED]:
        assert row.finished - row.arrived <= 10 * MS, "it is told at once, after the step"
        assert not row.good and row.budget == lane.budget
    assert all(row.queue <= 100 * MS for row in ends[Finish.LENGTH])
    run.scheduler.check()


def test_a_single_request_is_held_to_its_lanes_budget():
    lane = Lane("chat", Budget(ttft=5 * MS))
    (row,) = Run(fake_testbed(cost=FLAT), Policies(), [lane], requests(1)).serve().requests
    assert row.budget == lane.budget and row.ttft == 10 * MS and not row.good
