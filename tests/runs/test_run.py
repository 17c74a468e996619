"""One strategy on one workload: scheduled arrivals, a limit, and one executor for many runs."""

import pytest

from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
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


def test_requests_unfinished_at_the_limit_are_cancelled_and_stay_in_the_ledger():
    run = Run(
        fake_testbed(cost=FLAT), Policies(join=Continuous(1)), LANES, requests(3), limit=65 * MS
    )
    outcome = run.serve()
    assert [row.finish for row in outcome.requests] == [
        Finish.LENGTH,
        Finish.CANCELLED,  # it had run
        Finish.CANCELLED,  # it had not
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
