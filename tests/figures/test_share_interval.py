"""The interval of a share: by blocks of time, and exact if all requests are good or none is."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.figures.capacity_interval import BLOCKS
from headway.figures.intervals.block_bootstrap import TAKEN, mean_interval, middle
from headway.figures.intervals.share_interval import exact_interval, share_interval

WINDOW = (0, 1_000)


def asked(*good):
    return [(at * 1_000 // len(good), value) for at, value in enumerate(good)]


@given(st.integers(10, 10_000), st.sampled_from([0.9, 0.95]))
def test_all_good_or_none_good_has_the_exact_binomial_bound(n, covered):
    found = share_interval(asked(*[1] * n), WINDOW, covered)
    assert found.low**n == pytest.approx((1 - covered) / 2) and found.high == 1
    none = share_interval(asked(*[0] * n), WINDOW, covered)
    assert (none.low, none.high) == (0, pytest.approx(1 - found.low))


def test_26_of_26_is_at_least_87_percent():
    assert share_interval(asked(*[1] * 26), WINDOW, 0.95).low == pytest.approx(0.868, abs=5e-4)


@pytest.mark.parametrize("n", [10, 26, 217])
def test_the_exact_interval_is_that_of_clopper_and_pearson(n):
    stats = pytest.importorskip("scipy.stats")
    for count in (0, n):
        theirs = stats.binomtest(count, n).proportion_ci(0.95, "exact")
        mine = exact_interval(asked(*[int(count > 0)] * n), 0.95)
        assert (mine.low, mine.high) == pytest.approx((theirs.low, theirs.high))


def test_a_share_between_0_and_1_has_the_interval_of_redrawn_blocks():
    some = asked(*[1] * 30, 0, *[1] * 9)
    assert exact_interval(some, 0.95) is None
    assert share_interval(some, WINDOW, 0.95) == mean_interval(some, WINDOW, 0.95)


@pytest.mark.parametrize("covered, ends", [(0.9, (15, 384)), (0.95, (6, 393))])
def test_an_interval_takes_more_of_the_draws_because_blocks_are_few(covered, ends):
    found = middle(list(range(400)), covered)
    assert (found.low, found.high) == ends
    stats = pytest.importorskip("scipy.stats")
    wide = (BLOCKS / (BLOCKS - 1)) ** 0.5 * stats.t.ppf((1 + covered) / 2, BLOCKS - 1)
    assert TAKEN[covered] == pytest.approx(1 - 2 * stats.norm.sf(wide), abs=5e-4)


def test_an_interval_holds_the_true_share_about_as_often_as_it_says():
    draw, held = Random("shares"), 0
    for _ in range(100):
        good = asked(*[int(draw.random() < 0.8) for _ in range(100)])
        found = share_interval(good, WINDOW, 0.95)
        held += found.low <= 0.8 <= found.high
    assert 92 <= held <= 99


def test_too_few_requests_have_no_interval():
    assert share_interval(asked(*[1] * 9), WINDOW).is_empty
    assert share_interval([], WINDOW).is_empty
    assert not share_interval(asked(*[1] * 10), WINDOW).is_empty


@pytest.mark.parametrize("good", [[1] * 50, [1, 0] * 25])
def test_requests_that_came_at_one_moment_have_no_interval(good):
    assert share_interval([(7, value) for value in good], WINDOW).is_empty
