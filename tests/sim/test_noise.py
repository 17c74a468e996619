"""Residuals: as they were measured, correlated as they were, and keyed by the step."""

from statistics import NormalDist, mean, pvariance

import pytest

from headway.core.cost import Echo, Residuals, StepCost
from headway.sim.noise import AHEAD, Noise

QUANTILES = (800, 950, 1_000, 1_050, 1_400)


def drawn(*echoes, quantiles=QUANTILES, count=20_000):
    noise = Noise(StepCost(residuals=(Residuals(quantiles), Residuals()), echoes=echoes), seed=3)
    return [noise.at(step, 0) for step in range(1, count + 1)]


def correlation(values, lag=1):
    middle = mean(values)
    apart = [value - middle for value in values]
    pairs = zip(apart, apart[lag:], strict=False)
    return sum(a * b for a, b in pairs) / sum(a * a for a in apart)


def test_they_have_the_measured_distribution():
    values = sorted(drawn())
    found = [values[len(values) * share // 4] for share in (1, 2, 3)]
    assert all(abs(a - b) < 10 for a, b in zip(found, QUANTILES[1:], strict=False))
    assert min(values) >= 800 and max(values) <= 1_400


def test_a_slow_step_is_followed_by_slow_ones():
    assert abs(correlation(drawn())) < 0.05
    assert 0.6 < correlation(drawn(Echo(1_000, 700))) < 0.75


def test_what_lasts_is_still_there_when_what_fades_has_gone():
    bell = tuple(round(NormalDist(1_000, 100).inv_cdf(k / 200)) for k in range(1, 200))
    values = drawn(Echo(300, 995), Echo(500, 600), quantiles=bell, count=100_000)
    assert correlation(values) == pytest.approx(0.3 * 0.995 + 0.5 * 0.6, abs=0.03)
    assert correlation(values, lag=30) == pytest.approx(0.3 * 0.995**30, abs=0.04)


def test_what_lasts_goes_on_where_another_piece_is_drawn():
    bell = tuple(round(NormalDist(1_000, 100).inv_cdf(k / 200)) for k in range(1, 200))
    values = drawn(Echo(1_000, 900), quantiles=bell, count=300 * AHEAD)  # of step 1 and so on
    across = [(values[at - 2], values[at - 1]) for at in range(AHEAD, len(values), AHEAD)]
    middle, spread = mean(values), pvariance(values)
    found = mean((a - middle) * (b - middle) for a, b in across) / spread
    assert 0.7 < found < 1.1 and sum(a == b for a, b in across) < len(across) / 4


def test_a_slow_second_is_slow_for_small_and_for_large_steps():
    cost = StepCost(residuals=(Residuals(QUANTILES), Residuals(QUANTILES)))
    noise = Noise(cost, 1)
    assert [noise.at(step, 0) for step in range(9)] == [noise.at(step, 1) for step in range(9)]


def test_sums_vary_more_than_those_of_independent_steps():
    """Why it matters: the wait behind a hundred steps has the tails of their sum."""

    def spread(values):
        sums = sorted(sum(values[at : at + 100]) for at in range(0, len(values), 100))
        return sums[-len(sums) // 10] - sums[len(sums) // 10]

    assert spread(drawn(Echo(1_000, 900))) > 2 * spread(drawn())


def test_a_step_has_its_residual_whoever_asks_first():
    cost = StepCost(
        residuals=(Residuals(QUANTILES), Residuals(QUANTILES)), echoes=(Echo(700, 500),)
    )
    forward, backward = Noise(cost, 1), Noise(cost, 1)
    asked = [forward.at(step, 0) for step in (1, 2, 300)]
    assert [backward.at(step, 0) for step in (300, 2, 1)] == asked[::-1]
    assert [Noise(cost, 2).at(step, 0) for step in (1, 2, 300)] != asked, "seeds differ"


def test_without_residuals_every_step_takes_its_price():
    assert {Noise(StepCost(), 5).at(step, 1) for step in range(9)} == {1_000}
