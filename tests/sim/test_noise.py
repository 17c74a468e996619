"""Residuals: distributed and correlated as measured, and keyed by the step."""

from math import exp, log
from statistics import NormalDist, mean, pvariance

import pytest

from headway.core.cost.step_cost import Echo, Residuals, StepCost
from headway.sim.noise import AHEAD, Noise

QUANTILES = (800, 950, 1_000, 1_050, 1_400)


STEP = 10_000_000  # nanoseconds from a step to the next


def drawn(*echoes, quantiles=QUANTILES, count=20_000, step=STEP):
    noise = Noise(StepCost(residuals=(Residuals(quantiles), Residuals()), echoes=echoes), seed=3)
    return [noise.next(number * step, 0) for number in range(1, count + 1)]


def lasting(kept):
    """The time constant, in nanoseconds, that leaves the share `kept` after one step."""
    return round(-STEP / log(kept))


def correlation(values, lag=1):
    middle = mean(values)
    apart = [value - middle for value in values]
    pairs = zip(apart, apart[lag:], strict=False)
    return sum(a * b for a, b in pairs) / sum(a * a for a in apart)


def test_residuals_have_the_measured_distribution():
    values = sorted(drawn())
    found = [values[len(values) * share // 4] for share in (1, 2, 3)]
    assert all(abs(a - b) < 10 for a, b in zip(found, QUANTILES[1:], strict=False))
    assert min(values) >= 800 and max(values) <= 1_400


def test_a_slow_step_is_followed_by_slow_ones():
    assert abs(correlation(drawn())) < 0.05
    assert 0.6 < correlation(drawn(Echo(1_000, lasting(0.7)))) < 0.75


@pytest.mark.no_cover
def test_long_echoes_remain_when_short_ones_have_faded():
    bell = tuple(round(NormalDist(1_000, 100).inv_cdf(k / 200)) for k in range(1, 200))
    both = Echo(300, lasting(0.995)), Echo(500, lasting(0.6))
    values = drawn(*both, quantiles=bell, count=100_000)
    assert correlation(values) == pytest.approx(0.3 * 0.995 + 0.5 * 0.6, abs=0.03)
    assert correlation(values, lag=30) == pytest.approx(0.3 * 0.995**30, abs=0.04)


def test_a_long_echo_continues_across_batches_of_draws():
    bell = tuple(round(NormalDist(1_000, 100).inv_cdf(k / 200)) for k in range(1, 200))
    values = drawn(Echo(1_000, lasting(0.9)), quantiles=bell, count=300 * AHEAD)
    across = [(values[at - 2], values[at - 1]) for at in range(AHEAD, len(values), AHEAD)]
    middle, spread = mean(values), pvariance(values)
    found = mean((a - middle) * (b - middle) for a, b in across) / spread
    assert 0.7 < found < 1.1 and sum(a == b for a, b in across) < len(across) / 4


def test_a_slow_second_is_slow_for_small_and_for_large_steps():
    cost = StepCost(residuals=(Residuals(QUANTILES), Residuals(QUANTILES)))
    small, large = Noise(cost, 1), Noise(cost, 1)
    assert [small.next(at, 0) for at in range(9)] == [large.next(at, 1) for at in range(9)]


@pytest.mark.no_cover
def test_correlation_fades_with_time_and_not_with_steps():
    bell = tuple(round(NormalDist(1_000, 100).inv_cdf(k / 200)) for k in range(1, 200))
    for step in (STEP, 4 * STEP):
        values = drawn(Echo(1_000, 8 * STEP), quantiles=bell, count=60_000, step=step)
        assert correlation(values, 8 * STEP // step) == pytest.approx(exp(-1), abs=0.05)


def test_sums_of_correlated_steps_vary_more_than_of_independent_ones():
    """The wait behind a hundred steps has the tails of their sum."""

    def spread(values):
        sums = sorted(sum(values[at : at + 100]) for at in range(0, len(values), 100))
        return sums[-len(sums) // 10] - sums[len(sums) // 10]

    assert spread(drawn(Echo(1_000, lasting(0.9)))) > 2 * spread(drawn())


def test_residuals_are_a_function_of_step_time_and_seed():
    cost = StepCost(
        residuals=(Residuals(QUANTILES), Residuals(QUANTILES)), echoes=(Echo(700, STEP),)
    )
    times = [STEP, 2 * STEP, 90 * STEP]

    def asked(seed):
        noise = Noise(cost, seed)
        return [noise.next(at, 0) for at in times]

    assert asked(1) == asked(1) != asked(2)


def test_without_residuals_every_step_takes_its_predicted_time():
    assert {Noise(StepCost(), 5).next(at, 1) for at in range(9)} == {1_000}
