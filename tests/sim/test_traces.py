"""Random traces under random policies: every request gets the answer it would get alone."""

from collections import deque

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from headway.core.commands import Add
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, Start
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.errors import StuckError
from headway.executor.fake import FakeExecutor
from headway.sim.clock import VirtualClock
from headway.sim.inbox import TraceInbox, arrivals
from headway.sim.simulate import simulate
from tests.traces import BLOCK, COST, MS, THRASH, answer, ask, cases, make, run, scored, vector


def check_answers(case, scheduler, events):
    """One row per request, ordered times, the unbatched answers; all blocks and accounts closed."""
    said, scores = {id: [] for id in case.requests}, {id: [] for id in case.requests}
    vectors = dict.fromkeys(case.requests, b"")
    for each in events:
        said[each.id] += each.tokens
        scores[each.id] += each.prompt_logprobs
        vectors[each.id] += each.vector
    interrupted = {command.id for _, command in case.timed if not isinstance(command, Add)}
    steps, rows = scheduler.ledger.steps, scheduler.ledger.requests
    assert sorted(row.id for row in rows) == sorted(case.requests)
    started = {row.id: row.first_scheduled for row in rows}
    budgets = {lane.name: lane.budget for lane in case.lanes}
    for row in rows:
        request, tokens = case.requests[row.id], said[row.id]
        assert row.budget == budgets[request.lane]
        alone = answer(request)
        event(f"{row.finish}, preempted {min(row.preemptions, 2)}, cached {row.cached > 0}")
        if request.limit > case.most(request.lane):
            assert row.finish is Finish.REFUSED and not tokens
        elif row.finish is Finish.EXPIRED or row.id in interrupted:
            assert tokens == alone[: len(tokens)]
            assert scores[row.id] == scored(request)[: len(scores[row.id])]
        else:
            assert tokens == alone and row.generated == len(tokens)
            assert scores[row.id] == scored(request), "one for each position, in order"
            assert vectors[row.id] == vector(request)
        times = [row.arrived, row.first_scheduled, row.first_token, row.last_token, row.finished]
        reached = [time for time in times if time != NEVER]
        assert reached == sorted(reached)
        if (
            row.first_scheduled != NEVER
        ):  # or the request whose prompt it shares has started in time
            assert min(row.first_scheduled, started.get(request.follows, NEVER)) <= request.start_by
        if row.finish is Finish.EXPIRED:
            never_started = row.first_scheduled == NEVER and row.finished > request.start_by
            assert never_started or row.finished >= request.end_by
    assert scheduler.pool.num_free == case.blocks
    spent = sum(row.nanoseconds for row in rows) + sum(step.waste_nanoseconds for step in steps)
    assert spent == sum(step.nanoseconds for step in steps)


@pytest.mark.no_cover
@settings(deadline=None)
@given(cases())
@example(THRASH)
def test_every_request_ends_with_its_own_answer_and_all_blocks_are_free(case):
    done = run(case)
    for name in done.met:
        event(name)
    check_answers(case, done.scheduler, done.events)
    steps = done.scheduler.ledger.steps
    assert done.executor.executor.computed == sum(step.tokens + step.waste_tokens for step in steps)


@pytest.mark.no_cover
@settings(deadline=None)
@given(cases(), st.integers(0, 2))
def test_a_request_that_cannot_begin_fails_alone(case, seed):
    """It may fail for any reason. The others begin in the same step and get their own answers."""

    def begins(begun):
        if begun.sampling.seed == seed:
            raise MemoryError

    done = run(case, begins)
    said = {id: [] for id in case.requests}
    for each in done.events:
        said[each.id] += each.tokens
    interrupted = {command.id for _, command in case.timed if not isinstance(command, Add)}
    for row in done.scheduler.ledger.requests:
        request = case.requests[row.id]
        if request.sampling.seed == seed:
            assert row.finish not in (Finish.LENGTH, Finish.COMPUTED) and not said[row.id]
        elif row.id not in interrupted and row.finish not in (Finish.REFUSED, Finish.EXPIRED):
            assert said[row.id] == answer(request)
        event(f"{row.finish}")
    steps = done.scheduler.ledger.steps
    assert done.executor.executor.computed == sum(step.tokens + step.waste_tokens for step in steps)
    assert done.scheduler.pool.num_free == case.blocks


@pytest.mark.no_cover
@settings(deadline=None)
@given(cases())
@example(THRASH)
def test_two_steps_in_flight_need_no_second_loop(case):
    """The same three verbs, deciding one step ahead of the known tokens."""
    scheduler = Scheduler(case.settings)
    executor = FakeExecutor(case.blocks, BLOCK, case.burst)
    inbox = TraceInbox(case.timed, VirtualClock())
    flight, events = deque(), []
    while not scheduler.finished:
        inbox.wait(inbox.clock.now() + 5 * MS)
        assert inbox.clock.now() < 60_000 * MS, "it goes round in circles"
        now = inbox.clock.now()
        events += scheduler.apply(inbox.poll(), now)
        event(f"{len(flight)} in flight")
        if flight:
            batch, ticket = flight.popleft()
            events += scheduler.commit(batch, executor.collect(ticket), now)
        while len(flight) < 2 and (batch := scheduler.schedule(now)).rows:
            flight.append((batch, executor.submit(batch)))
        scheduler.check()
    check_answers(case, scheduler, events)


def test_the_thrash_case_preempts_all_requests_but_the_oldest():
    rows = run(THRASH).scheduler.ledger.requests
    preemptions = [(row.id, row.preemptions) for row in rows]
    assert preemptions == [("r0", 0), ("r1", 1), ("r2", 3), ("r3", 2)]


def test_a_simulation_is_deterministic():
    assert run(THRASH).executor.batches == run(THRASH).executor.batches


def test_time_is_charged_by_the_cost_model():
    scheduler = make(32, Policies(join=Continuous(8), chunk=Fixed(4)))
    simulate(scheduler, arrivals([ask("a", 6, 2, arrived=5 * MS)]), COST)
    (row,) = scheduler.ledger.requests
    assert row.ttft == (10 + 4) * MS + (10 + 2) * MS
    assert row.tpot == (10 + 1) * MS and row.nanoseconds == row.e2e


def test_a_lane_with_its_own_window_does_not_wait_for_that_of_others():
    windows = {"chat": 0}
    scheduler = make(32, Policies(join=Dynamic(4, 900 * MS, windows)), ("bulk", "chat"))
    requests = [ask("b", 4, 1, lane="bulk"), ask("c", 4, 1, arrived=9 * MS, lane="chat")]
    late = ask("late", 4, 1, arrived=5000 * MS, lane="bulk")
    simulate(scheduler, arrivals([*requests, late]), COST)
    assert [row.first_scheduled for row in scheduler.ledger.requests] == [9 * MS, 9 * MS, 5000 * MS]


def test_a_run_that_can_never_end_is_detected():
    class Nobody:
        def start(self, view):
            return Start()

    scheduler = make(32, Policies(join=Nobody()))
    with pytest.raises(StuckError, match="nothing will ever happen"):
        simulate(scheduler, arrivals([ask("a", 4, 1)]), COST)
