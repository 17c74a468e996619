"""Residuals: as they were measured, correlated as they were, and keyed by the step."""

from itertools import pairwise
from statistics import mean

from headway.core.cost import Residuals, StepCost
from headway.sim.noise import Noise

QUANTILES = (800, 950, 1_000, 1_050, 1_400)


def drawn(echo, seed=3, count=20_000):
    noise = Noise(StepCost(residuals=(Residuals(QUANTILES, echo), Residuals())), seed)
    return [noise.at(step, 0) for step in range(1, count + 1)]


def correlation(values):
    middle = mean(values)
    apart = [value - middle for value in values]
    return sum(a * b for a, b in pairwise(apart)) / sum(a * a for a in apart)


def test_they_have_the_measured_distribution():
    values = sorted(drawn(echo=0))
    found = [values[len(values) * share // 4] for share in (1, 2, 3)]
    assert all(abs(a - b) < 10 for a, b in zip(found, QUANTILES[1:], strict=False))
    assert min(values) >= 800 and max(values) <= 1_400


def test_a_slow_step_is_followed_by_slow_ones():
    assert abs(correlation(drawn(echo=0))) < 0.05
    assert 0.6 < correlation(drawn(echo=700)) < 0.75


def test_sums_vary_more_than_those_of_independent_steps():
    """Why it matters: the wait behind a hundred steps has the tails of their sum."""

    def spread(values):
        sums = sorted(sum(values[at : at + 100]) for at in range(0, len(values), 100))
        return sums[-len(sums) // 10] - sums[len(sums) // 10]

    assert spread(drawn(echo=900)) > 2 * spread(drawn(echo=0))


def test_a_step_has_its_residual_whoever_asks_first():
    cost = StepCost(residuals=(Residuals(QUANTILES, 500), Residuals(QUANTILES, 500)))
    forward, backward = Noise(cost, 1), Noise(cost, 1)
    asked = [forward.at(step, 0) for step in (1, 2, 3)]
    assert [backward.at(step, 0) for step in (3, 2, 1)] == asked[::-1]
    assert [Noise(cost, 1).at(step, 1) for step in (1, 2, 3)] != asked, "regimes are apart"


def test_without_residuals_every_step_takes_its_price():
    assert {Noise(StepCost(), 5).at(step, 1) for step in range(9)} == {1_000}
