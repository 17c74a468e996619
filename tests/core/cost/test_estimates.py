"""A cost model's correction follows slow change, within bounds, and a replay learns it again."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.batch import Output, Want
from headway.core.commands import Add, Cancel
from headway.core.cost.estimates import DRAIN_DECAY, EVERY, SLOWNESS, Drain, Estimates
from headway.core.cost.features import row_features
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane, Line
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
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


def test_a_machine_that_slows_down_is_followed_slowly():
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


def step(scheduler, spent, now):
    """Run the next step in this time; every row that wants a token gets 9."""
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
def test_the_hosts_time_between_steps_counts_as_waiting_and_sleep_does_not(
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


def test_one_token_prompts_fade_like_long_ones():
    line, drain = Line(Lane()), Drain()
    for _ in range(200):
        line.started += 1
        drain.see(line, MS)
    for _ in range(200):
        line.started += 1
        drain.see(line, 10 * MS)
    assert drain.millitokens * 1e6 / drain.nanoseconds == pytest.approx(100, rel=0.01)


def test_a_replay_learns_the_same():
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
