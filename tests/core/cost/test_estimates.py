"""A cost model's correction follows slow change, within bounds, and a replay learns it again."""

from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.batch import Batch, Output, Row, Want
from headway.core.commands import Add, Cancel
from headway.core.cost.estimates import (
    DRAIN_DECAY,
    EVERY,
    PREFILL_DECAY,
    SLOWNESS,
    Drain,
    Estimates,
)
from headway.core.cost.features import row_features
from headway.core.cost.lengths import ALLOWED, ENOUGH, LEARNED
from headway.core.cost.paces import Paces
from headway.core.cost.promise import Promise
from headway.core.cost.step_cost import Residuals, StepCost
from headway.core.lane import Lane, Line
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings
from headway.engine import Engine
from headway.journal import journal
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from headway.sim.replay import replay
from tests.traces import BLOCK, MS, ask

COST = StepCost.of(10 * MS, per_token=MS)
ROW = row_features(9, 1)


def test_nothing_is_learned_about_an_unknown_cost_model():
    assert not any(Estimates(StepCost()).looks_at(step) for step in range(100))
    assert Estimates(StepCost()).drift == 0, "there is nothing to compare with"


def test_only_one_step_in_sixteen_is_measured():
    looked = [step for step in range(1, 50) if Estimates(COST).looks_at(step)]
    assert looked == [EVERY, 2 * EVERY, 3 * EVERY]


def test_the_drift_gradually_follows_a_machine_that_slows_down():
    estimates, slow = Estimates(COST), COST.predict(ROW) * 3 // 2
    estimates.learn(ROW, slow)
    assert estimates.drift == 1_000 + 500 // SLOWNESS
    for _ in range(5 * SLOWNESS):
        estimates.learn(ROW, slow)
    assert 1_490 < estimates.drift <= 1_500
    assert abs(estimates.predict(ROW) - slow) < slow / 100
    assert estimates.shortest == estimates.predict(row_features(0, 1, 1))


@given(st.lists(st.integers(0, 10**12), max_size=300))
def test_drift_stays_within_its_bounds(times):
    estimates = Estimates(COST)
    for time in times:
        estimates.learn(ROW, time)
        assert 500 <= estimates.drift <= 2_000


def test_the_pace_is_that_of_the_lane_but_no_faster_than_the_shortest_step():
    estimates = Estimates(COST)
    assert estimates.pace("chat") == 11 * MS, "not known yet"
    for spent, pace in ((4, 11), (20, 20)):
        estimates.promises.paces = Paces()
        estimates.promises.paces.ended("chat", 10 * spent * MS, 10)
        assert estimates.pace("chat") == pace * MS


def test_a_quantile_of_step_time_is_that_of_the_steps_regime():
    residuals = Residuals((1_000, 1_200)), Residuals((1_000, 3_000))
    estimates = Estimates(replace(COST, knee=4, residuals=residuals))
    for tokens, most in ((4, 6), (5, 15)):
        features = row_features(0, tokens)
        assert estimates.surely(features, 1.0) == estimates.predict(features) * most // 5


def test_work_is_priced_as_in_the_largest_steps_and_repriced_when_tokens_come():
    estimates = Estimates(replace(COST, pieces=((0, MS * 1_000), (6, 2 * MS * 1_000))))
    asked = ask("a", 3, 9)
    waits = Sequence(0, asked, asked.tokens())
    assert (estimates.work(waits), estimates.first_token(waits)) == (6 * MS, 13 * MS)
    waits.tokens += [7, 7]  # it was preempted
    assert (estimates.work(waits), estimates.first_token(waits)) == (10 * MS, 15 * MS)


def ended(estimates, finish=Finish.LENGTH, *, prompt=10, generated=4, took=100):
    asked = ask("a", prompt, 9)
    sequence = Sequence(0, asked, asked.tokens() + [7] * generated, first_scheduled=50)
    if generated:
        sequence.first_token = sequence.last_token = 50 + took
    estimates.ended(sequence, finish, 500)


def test_the_prefill_time_per_token_follows_the_latest_prompts():
    estimates = Estimates(StepCost())
    for took in (100, 300):
        for _ in range(20 * PREFILL_DECAY):
            ended(estimates, took=took)
        assert estimates.prefill == pytest.approx(took // 10, abs=1)


def test_an_answer_that_expires_without_a_token_teaches_no_length():
    asked = ask("b", 10, 9)
    for generated in (0, 2):
        estimates = Estimates(StepCost())
        for _ in range(ENOUGH):
            ended(estimates, Finish.EXPIRED, generated=generated)
        assert estimates.lengths.knows(Sequence(0, asked, asked.tokens())) is (generated > 0)


def test_a_promise_ends_no_earlier_than_the_step_that_makes_it():
    """Earlier answers ended long before their predicted ends."""
    estimates, asked = Estimates(COST), ask("a", 3, 9)
    for _ in range(ENOUGH):
        made = Promise(0, end=10_000, span=1_000, basis=ALLOWED)
        estimates.promises.made("default", 3, made)
        estimates.promises.ended("default", made, 1, whole=True)
    promise = estimates.promise(Sequence(0, asked, asked.tokens()), 100, 200, 50)
    assert (promise.first, promise.end) == (200, 200), "nor does the first token come after it"


@pytest.mark.parametrize("open_, basis", [(1, LEARNED), (2, ALLOWED)])
def test_learned_lengths_are_unused_while_more_answers_run_than_have_ended(open_, basis):
    estimates, asked = Estimates(COST), ask("b", 10, 9)
    for _ in range(ENOUGH):
        ended(estimates)
    made = Promise(0, end=10_000, span=1_000, basis=ALLOWED)
    for _ in range(1 + open_):
        estimates.promises.made("default", 10, made)
    estimates.promises.ended("default", made, 1, whole=True)
    promise = estimates.promise(Sequence(0, asked, asked.tokens()), 100, 200, 50)
    left = {LEARNED: 4, ALLOWED: 9}[basis]
    assert (promise.basis, promise.span) == (basis, 150 + (left - 1) * 100)


def test_a_call_costs_what_its_first_step_takes_padding_included():
    estimates = Estimates(StepCost(), calls=True)
    rest = Row(0, 4, range(4, 8), (), Want.NOTHING)
    estimates.see(Batch(1, (rest,)), 70)
    assert not estimates.calls.is_known
    estimates.see(Batch(2, (rest._replace(start=0),), width=8), 800)
    assert estimates.calls.line == (0, 100)


def step(scheduler, spent, now):
    """Run the next step in `spent` nanoseconds; each row that wants a token gets 9."""
    batch = scheduler.schedule(now)
    said = tuple((9,) if row.want is Want.LAST else () for row in batch.rows)
    scheduler.commit(batch, Output(said), now + spent)
    return now + spent


def test_a_drain_rate_is_the_tokens_started_over_the_time_with_waiting_requests():
    scheduler = Scheduler(Settings(99, BLOCK, policies=Policies(Continuous(2))))
    assert scheduler.load(0).lanes["default"].drain == 0, "not known yet"
    scheduler.apply([Add(ask(f"r{i}", (i,) * 10, 4)) for i in range(3)], 0)
    now = step(scheduler, 100 * MS, 0)
    assert scheduler.load(now).lanes["default"].drain == 200, (
        "two prompts of ten tokens in a tenth of a second"
    )
    now = step(scheduler, 100 * MS, now)
    assert scheduler.load(now).lanes["default"].drain == 100, "one waits and none starts"
    while len(scheduler.roster.running) == 2:
        now = step(scheduler, 100 * MS, now)
    before = scheduler.load(now).lanes["default"]
    assert (before.waiting, before.drain) == (1, 50)
    now = step(scheduler, 100 * MS, now)
    tokens, seconds = 20 - 20 / DRAIN_DECAY + 10, 0.4 - 0.4 / DRAIN_DECAY + 0.1
    assert scheduler.load(now).lanes["default"].drain == pytest.approx(tokens / seconds)
    known = scheduler.load(now).lanes["default"].drain
    now = step(scheduler, 100 * MS, now)
    assert scheduler.load(now).lanes["default"].drain == known, "none waits: nothing is learned"


@pytest.mark.parametrize("cancelled", [False, True])
def test_host_time_between_steps_counts_as_waiting_and_sleep_does_not(
    cancelled,
):
    scheduler = Scheduler(Settings(99, BLOCK, policies=Policies(Continuous(1))))
    scheduler.apply([Add(ask(f"r{i}", 10, 2)) for i in range(3)], 0)
    now = step(scheduler, 100 * MS, 0)
    assert scheduler.load(now).lanes["default"].drain == 100
    now = step(scheduler, 100 * MS, now + 100 * MS)
    assert scheduler.load(now).lanes["default"].drain == pytest.approx(10 / 0.3)
    while scheduler.roster.waiting:
        now = step(scheduler, 100 * MS, now)
    if cancelled:
        scheduler.apply([Cancel("r2")], now)
    while scheduler.roster.running:
        now = step(scheduler, 100 * MS, now)
    scheduler.schedule(now)
    before = scheduler.estimates._drains["default"].nanoseconds
    scheduler.apply([Add(ask("late", 10, 9))], now + 9_000 * MS)
    step(scheduler, 100 * MS, now + 9_000 * MS)
    after = scheduler.estimates._drains["default"].nanoseconds
    assert after - before < 100 * MS


def test_the_drain_rate_forgets_one_token_prompts_like_long_ones():
    line, drain = Line(Lane()), Drain()
    for _ in range(200):
        line.started += 1
        drain.see(line, MS)
    for _ in range(200):
        line.started += 1
        drain.see(line, 10 * MS)
    assert drain.millitokens * 1e6 / drain.nanoseconds == pytest.approx(100, rel=0.01)


def test_a_replay_learns_the_same_drift_and_lane_loads():
    settings = Settings(32, BLOCK, policies=Policies(), cost=COST)
    scheduler, clock, file = Scheduler(settings), VirtualClock(), StringIO()
    journal.begin(settings, file)
    slower = PricedExecutor(StepCost.of(13 * MS, per_token=MS), clock)
    inbox = TraceInbox(arrivals([ask("a", 5, 60)]), clock)
    engine = Engine(scheduler, slower, inbox, clock, lambda each: journal.write(each, file))
    while not scheduler.finished:
        engine.step()
    again, _ = replay(*journal.read(file.getvalue().splitlines()))
    assert engine.load.drift > 1_000 and again.load(0).drift == engine.load.drift
    assert again.load(0).lanes == engine.load.lanes
