"""The fit finds the true prices, stays non-negative and withstands a busy neighbour."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from headway.commands.calibrate.design import designs
from headway.commands.calibrate.fit import (
    HOST,
    Observation,
    PiecewiseFit,
    fit_device,
    fit_rates,
    fit_steps,
    knee,
    segments,
    solve,
)
from headway.commands.calibrate.trials import Sample, Trials
from headway.core.cost.features import Features
from headway.core.cost.step_cost import Rates, Rounding, StepCost
from tests.commands.testbeds import fake_testbed

COST = StepCost(
    device=Rates(step=2_000_000_000, row=4_000_000, prompt=90_000_000, read=300_000, pair=9_000,
                 logit=20_000_000, decode=1_000_000_000, prefill=600_000_000, head=300_000_000),
    pieces=((0, 5_000_000), (128, 40_000_000)),
)  # fmt: skip


def points(cost):
    """Samples of the designed batches at these prices."""
    here = fake_testbed(cost=cost)
    made = designs(8, here.context, here.num_blocks, here.block_size, 0, cost.rounding.tile)
    samples = Trials(here, 0).measure(made, 60.0, lambda share: None)
    return [Observation(sample.features, sample.nanoseconds) for sample in samples]


@pytest.fixture(scope="module")
def priced():
    return points(COST)


def off(found, priced):
    cost = StepCost(found.rates, found.pieces)
    return [abs(cost.predict(point.features) / point.nanoseconds - 1) for point in priced]


def test_the_fit_finds_the_prices_that_the_steps_were_made_of(priced):
    found = fit_device(priced)
    assert [begin for begin, _ in found.pieces] == [0, 128], "this knot and no other"
    assert knee(found) == 128
    assert max(off(found, priced)) < 0.005
    assert found.rates.read == pytest.approx(COST.device.read, rel=0.05)
    assert found.rates.pair == pytest.approx(COST.device.pair, rel=0.05)
    assert found.rates.head == pytest.approx(COST.device.head, rel=0.05)
    assert found.rates.prefill == pytest.approx(COST.device.prefill, rel=0.05)


def test_the_fit_finds_prices_where_the_executor_rounds_tokens_up():
    rounding = Rounding(least=4, digits=4)
    rounded = points(replace(COST, rounding=rounding))
    plain, found = fit_device(rounded), fit_device(rounded, rounding)
    cost = StepCost(found.rates, found.pieces, rounding=rounding)
    errors = [abs(cost.predict(each.features) / each.nanoseconds - 1) for each in rounded]
    assert max(errors) < 0.005 and found.error < 0.005 < plain.error
    assert max(off(plain, rounded)) > 0.02


@pytest.mark.evidence
def test_the_fit_finds_the_price_of_a_tile():
    rounding = Rounding(tile=32)
    tiled = points(replace(COST, tile=400_000_000, rounding=rounding))
    plain, found = fit_device(tiled), fit_device(tiled, rounding)
    assert plain.tile == 0 and found.tile == pytest.approx(400_000_000, rel=0.05)
    assert found.error < 0.005 < plain.error
    dear = 1_200_000_000
    steps = points(replace(COST, tile=dear, rounding=rounding))
    samples = [Sample(each.features, round(each.nanoseconds), 0) for each in steps]
    fitted, known = fit_steps(samples, rounding), fit_steps(samples, rounding, dear)
    assert known.tile == dear and known.rounding == fitted.rounding == rounding
    assert 0 < known.knee < 128, "a tile's share is part of a token's price"
    assert known.knee == pytest.approx(fitted.knee, rel=0.05)
    flat = fit_device(priced_flat := points(replace(COST, rounding=rounding)), rounding)
    assert flat.tile < 10_000_000 and max(off(flat, priced_flat)) < 0.01, "there are none"


def test_one_step_faster_than_its_tiles_does_not_spoil_the_fit():
    rounding = Rounding(tile=32)
    cost = replace(COST, tile=4_000_000_000, rounding=rounding)
    samples = [Sample(each.features, round(each.nanoseconds), 0) for each in points(cost)]
    fast = min(samples, key=lambda sample: sample.nanoseconds)
    at = samples.index(fast)
    samples[at] = replace(fast, nanoseconds=fast.nanoseconds // 3)
    found = fit_steps(samples, rounding, cost.tile)
    others = samples[:at] + samples[at + 1 :]
    assert all(
        found.predict(each.features) == pytest.approx(each.nanoseconds, rel=0.02) for each in others
    )


def test_steps_slowed_by_a_neighbour_do_not_spoil_the_fit(priced):
    random = Random(0)
    disturbed = [
        replace(point, nanoseconds=point.nanoseconds * (8 if random.random() < 0.1 else 1))
        for point in priced
    ]
    assert sorted(off(fit_device(disturbed), priced))[len(priced) // 2] < 0.02


def test_a_step_a_hundred_times_too_long_does_not_choose_the_knots(priced):
    first, *others = sorted(priced, key=lambda point: point.features.tokens)
    found = fit_device([replace(first, nanoseconds=100 * first.nanoseconds), *others])
    assert [begin for begin, _ in found.pieces] == [0, 128]
    assert max(off(found, others)) < 0.005


def test_prices_are_means_although_small_steps_spread_more(priced):
    """With errors relative to measured times, small steps would be predicted 12 % too short."""
    random = Random(1)
    spread = {point: 0.3 if point.features.tokens <= 16 else 0.1 for point in priced}
    drawn = [
        replace(point, nanoseconds=point.nanoseconds * random.lognormvariate(-(sd**2) / 2, sd))
        for point, sd in spread.items()
        for _ in range(2)
    ]
    found = fit_device(drawn)
    cost = StepCost(found.rates, found.pieces)
    for few in (True, False):
        mine = [point for point in priced if (point.features.tokens <= 16) is few]
        said = sum(cost.predict(point.features) / point.nanoseconds for point in mine)
        assert said / len(mine) == pytest.approx(1.0, abs=0.04)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**30))
def test_coefficients_are_whole_and_never_negative(seed):
    random = Random(seed)
    noisy = [
        Observation(
            Features(tokens, rows, rows, tokens, tokens, rows), random.lognormvariate(14, 2)
        )
        for tokens, rows in ((random.randint(1, 2_000), random.randint(1, 9)) for _ in range(40))
    ]
    rates = fit_rates(noisy, HOST)
    numbers = [getattr(rates, name) for name in HOST]
    numbers += [slope for _, slope in fit_device(noisy).pieces]
    assert all(isinstance(number, int) and number >= 0 for number in numbers)


def test_a_relative_error_counts_the_same_in_short_and_long_steps():
    found = solve([[1.0], [1_000.0]], [1.1, 900.0], [1.0, 1.0])
    assert found[0] == pytest.approx(1.0, rel=0.03)


def test_samples_of_little_weight_change_the_fit_little():
    rows, targets = [[1.0]] * 4, [1.0, 1.0, 1.2, 1.2]
    assert solve(rows, targets, [1.0] * 4)[0] == pytest.approx(1.1, abs=0.01)
    assert solve(rows, targets, [1.0, 1.0, 0.02, 0.02])[0] == pytest.approx(1.0, abs=0.01)
    steps = [Features(tokens, 1, 1, tokens, tokens, 1) for tokens in (10, 20, 40, 80)]
    points = [Observation(step, COST.predict(step) + 50_000) for step in steps]
    points += [Observation(step, COST.predict(step), 0.001) for step in steps]
    found = fit_device(points)
    cost = StepCost(found.rates, found.pieces)
    assert [cost.predict(step) for step in steps] == pytest.approx(
        [COST.predict(step) + 50_000 for step in steps], rel=0.002
    )


@given(st.integers(0, 10_000))
def test_segments_add_up_to_the_tokens(tokens):
    parts = segments(tokens, [0, 8, 512])
    assert sum(parts) == tokens and parts[0] <= 8 and parts[1] <= 504


@pytest.mark.parametrize(
    "pieces, expected",
    [
        (((0, 1), (64, 10), (512, 10)), 64),  # flat, then steep
        (((0, 10),), 20),  # steep from the start: where tokens outweigh the step's 200
        (((0, 10), (512, 3)), 20),  # a fall after it makes no difference
        (((0, 0),), 200),  # tokens cost nothing
    ],
)
def test_the_knee_is_where_tokens_begin_to_cost(pieces, expected):
    assert knee(PiecewiseFit(Rates(step=200), pieces, 0.0, largest=4_096)) == expected
