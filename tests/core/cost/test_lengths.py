"""How long answers are, learned from ended ones, and how much memory they will need."""

from math import inf, isqrt, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.commands import Add
from headway.core.cost.lengths import ENOUGH, KEPT, Lengths, Sample
from headway.core.cost.step_cost import StepCost
from headway.core.policies.join import Continuous
from headway.core.policies.memory import Ahead, Now
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED, Sequence
from headway.core.settings import Settings
from headway.core.view import View
from headway.errors import SettingError
from headway.sim.simulate import simulate
from tests.traces import MS, ask


def sequence(number=0, prompt=8, generated=0, most=1_000, lane="chat", **rest):
    request = ask(f"r{number}", prompt, most, lane=lane, **rest)
    return Sequence(number, request, [*request.prompt, *[0] * generated])


def learned(*lengths, prompt=8, lane="chat"):
    known = Lengths()
    for length in lengths:
        known.ended(sequence(prompt=prompt, generated=length, lane=lane))
    return known


@given(st.lists(st.integers(1, 50), min_size=ENOUGH, max_size=80), st.integers(0, 30))
def test_a_quantile_is_taken_over_answers_longer_than_the_tokens_so_far(lengths, beyond):
    sample = Sample()
    for length in lengths:
        sample.add(length)
    longer = sorted(length for length in lengths if length > beyond)
    for percent in (1, 50, 90, 100):
        found = sample.quantile(percent / 100, beyond)
        if len(longer) < ENOUGH:
            assert found == 0, "too few to say"
        else:
            rank = max(1, -(-percent * len(longer) // 100))
            assert found in longer[max(0, rank - 2) : rank + 1] and found > beyond


def test_old_answers_are_forgotten():
    sample = Sample()
    for length in [7] * KEPT + [90] * KEPT:
        sample.add(length)
    assert sample.quantile(0.01, 0) == 90


def test_with_few_answers_known_the_expected_length_is_max_tokens():
    assert Lengths().end(sequence(most=300), 0.5) == 8 + 300
    assert learned(*[20] * (ENOUGH - 1)).end(sequence(most=300), 0.5) == 8 + 300


def test_the_expected_length_is_a_quantile_of_earlier_answers():
    known = learned(*range(1, 101))
    assert known.end(sequence(), 0.5) == 8 + 50
    assert known.end(sequence(generated=50), 0.5) == 8 + 75, "of those longer than 50"
    assert known.end(sequence(most=30), 0.5) == 8 + 30, "the caller allows no more"
    beyond = sequence(generated=100)
    assert known.end(beyond, 0.5) == 8 + 1_000, "longer than any other"


def test_a_cut_answer_counts_as_long_as_the_answers_that_were_longer():
    """Half of the answers have 20 tokens and half have 200, of which 9 in 10 end after 60."""
    known = Lengths()
    for i in range(400):
        is_long = i % 2
        if is_long and i % 20 != 1:
            known.cut(sequence(generated=60, most=250))
        else:
            known.ended(sequence(generated=200 if is_long else 20))
    assert known.end(sequence(), 0.4) == 8 + 20
    assert known.end(sequence(), 0.6) > 8 + 60, "half are long, not one in eleven"
    assert known.end(sequence(), 0.9) == 8 + 200
    assert known.end(sequence(generated=60), 0.7) == 8 + 200, "the first were taken to have 120"


def test_a_cut_answer_that_none_exceeded_counts_as_twice_its_length():
    known = Lengths()
    for _ in range(ENOUGH):
        known.cut(sequence(generated=60))
    assert known.end(sequence(), 0.9) == 8 + 120
    known = Lengths()
    for _ in range(ENOUGH):
        known.cut(sequence(generated=60, most=100))
    assert known.end(sequence(), 0.9) == 8 + 100, "no more than its caller allowed"


def test_an_expected_end_is_recomputed_only_when_it_is_reached():
    known, each = learned(*[20] * ENOUGH), sequence()
    assert known.end(each, 0.5) == 28
    for _ in range(ENOUGH):
        known.ended(sequence(generated=40))
    each.tokens += [0] * 19
    assert known.end(each, 0.5) == 28
    each.tokens += [0]
    assert known.end(each, 0.5) == 48


def test_answer_lengths_are_learned_per_lane_and_class_of_prompt_length():
    known = learned(*[20] * ENOUGH, prompt=8)
    for _ in range(ENOUGH):
        known.ended(sequence(prompt=600, generated=300))
    assert known.end(sequence(prompt=9), 0.5) == 29
    assert known.end(sequence(prompt=512), 0.5) == 812
    assert known.end(sequence(prompt=100), 1.0) == 400, "of the lane, where the class is new"
    assert known.end(sequence(lane="voice", most=70), 0.5) == 78


def test_the_callers_expected_length_counts_until_it_is_exceeded():
    known = learned(*[20] * ENOUGH)
    assert known.end(sequence(expected=90), 0.5) == 98
    assert known.end(sequence(expected=90, most=60), 0.5) == 68
    assert known.end(sequence(expected=5, generated=5), 0.5) == 28


def test_an_expected_end_never_exceeds_max_tokens():
    assert Lengths().end(sequence(most=0), 0.9) == 8
    sampled = sequence(generated=1, most=5)
    sampled.expect()
    assert Lengths().end(sampled, 0.9) == 8 + 5, "one of its tokens is being sampled"


def test_an_answer_of_unknown_length_is_likely_to_double_its_tokens_so_far():
    nothing, some = Lengths(), learned(*[20] * ENOUGH)
    assert nothing.likely_end(sequence(), 0.5) == 8 + 1
    assert nothing.likely_end(sequence(generated=30), 0.5) == 8 + 60
    assert nothing.likely_end(sequence(generated=30, most=40), 0.5) == 8 + 40
    assert some.likely_end(sequence(), 0.5) == 8 + 20
    assert some.likely_end(sequence(generated=20), 0.5) == 8 + 40, "longer than all"
    assert some.likely_end(sequence(expected=90), 0.5) == 98
    running = sequence(generated=1)
    assert some.likely_end(running, 0.5) == 8 + 20
    waits = sequence()
    known = learned(*[20] * (ENOUGH - 1))
    assert known.likely_end(waits, 0.5) == 8 + 1
    known.ended(sequence(generated=20))
    assert known.likely_end(waits, 0.5) == 8 + 20, "one more has ended since"


def suffices(memory, view, beside, joining, staying=(), found=0):
    forecast = memory.forecast(view, beside, staying)
    return forecast is None or not forecast.steps_to_room(joining, found)


def known_to_end(holders):
    """Sequences of known ends. holders: of each, the tokens still to come and those so far."""
    return [
        sequence(i, prompt=now, most=left, expected=left) for i, (left, now) in enumerate(holders)
    ]


def brute_force(holders, size):
    """The most tokens at any step; each sequence holds half a block more than its tokens."""
    peak = 0
    for step in range(1, 1 + max(left for left, _ in holders)):
        # Just before one ends, it still holds its blocks.
        peak = max(peak, sum(now + step for left, now in holders if left >= step))
    return peak + len(holders) * size // 2


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=2, max_size=8))
def test_memory_ahead_must_hold_the_peak_of_all_future_steps(holders):
    """Of each holder: tokens still to come, and tokens so far."""
    running = known_to_end(holders)
    size, joining = 4, running.pop()
    needs = brute_force(holders, size)
    for blocks, fits in ((-(-needs // size), True), ((needs - 1) // size, False)):
        view = View(0, (), running, num_blocks=blocks, block_size=size)
        assert suffices(Ahead(), view, running, joining) is fits


def test_blocks_shared_by_several_sequences_count_once():
    """Ten sequences of 20 tokens share four blocks of four tokens."""
    running = [sequence(i, prompt=20, most=4, expected=4) for i in range(10)]
    for each in running:
        each.blocks = [1, 2, 3, 4, 5 + each.number]
    joining = sequence(10, prompt=20, most=4, expected=4)
    view = View(0, (), num_blocks=32, block_size=4, shared={1, 2, 3, 4})
    assert suffices(Ahead(), view, running, joining, found=16)
    assert not suffices(Ahead(), view._replace(num_blocks=31), running, joining, found=16)
    assert not suffices(Ahead(), view, running, joining), "it has blocks of its own"
    assert not suffices(Ahead(), view._replace(shared=()), running, joining, found=16)


HOLDERS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=8)


@given(HOLDERS, st.lists(st.integers(1, 40), max_size=6))
def test_sequences_in_time_are_not_forecast_to_free_their_blocks(holders, in_time):
    """Of each holder: tokens still to come, and tokens so far. in_time: tokens so far."""
    running, size = known_to_end(holders), 4
    staying = [sequence(100 + i, prompt=now, most=1) for i, now in enumerate(in_time)]
    joining = sequence(90, prompt=5, most=7, expected=7)
    more = min(sum(in_time), int(1.5 * isqrt(sum(now * now for now in in_time))))
    needs = brute_force([*holders, (7, 5)], size) + sum(in_time) + more
    needs += (len(holders) + 1 + len(in_time)) * size // 2 - (len(holders) + 1) * size // 2
    for blocks, fits in ((-(-needs // size), True), ((needs - 1) // size, False)):
        view = View(0, (), num_blocks=blocks, block_size=size)
        assert suffices(Ahead(spread=1.5), view, running, joining, staying) is fits
    empty = View(0, (), num_blocks=1, block_size=size)
    assert suffices(Ahead(), empty, [], joining, staying), "else it could never run"


def test_without_timed_ahead_forecasts_only_for_later_tiers():
    joining = sequence()
    for tier, asked in ((TIMED, False), (RELEGATED, True), (UNTIMED, True)):
        joining.tier = tier
        assert Ahead().foresees(joining) and not Now().foresees(joining)
        assert Ahead(timed=False).foresees(joining) is asked


def test_requests_that_join_in_one_step_count_each_others_future_blocks():
    """Three requests of 96 + 32 tokens, and 20 blocks of 16: two requests fit."""
    policies = Policies(Continuous(8), memory=Ahead(1.0), step_tokens=2_000)
    cost = StepCost.of(10 * MS, per_token=MS)
    scheduler = Scheduler(Settings(20, 16, policies=policies, cost=cost))
    asked = [ask(f"r{i}", (i,) * 96, 32, expected=32) for i in range(3)]
    simulate(scheduler, [(0, Add(each)) for each in asked], cost)
    first, second, third = scheduler.ledger.requests
    assert scheduler.roster.preemptions == 0
    assert first.first_scheduled == second.first_scheduled < third.first_scheduled


def test_a_lone_request_always_joins():
    view = View(0, (), num_blocks=1, block_size=1)
    assert suffices(Ahead(), view, [], sequence())
    assert Now().forecast(view, [sequence()]) is None


def test_a_share_of_zero_and_an_invalid_spread_are_refused():
    with pytest.raises(SettingError, match="more than 0"):
        Ahead(0)
    for spread in (-1.0, nan, inf):
        with pytest.raises(SettingError, match="a spread is a number, 0 or more"):
            Ahead(spread=spread)
