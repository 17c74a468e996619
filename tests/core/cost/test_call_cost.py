"""The time that a call of a function takes, learned from earlier calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.cost.call_cost import CallCost


def learned(*calls):
    cost = CallCost()
    for cells, nanoseconds in calls:
        cost.see(cells, nanoseconds)
    return cost


def test_a_new_call_cost_predicts_zero():
    assert not CallCost().is_known
    assert CallCost().surely(9) == 0
    assert CallCost().line == (0.0, 0.0)


def test_base_and_rate_of_a_linear_cost_are_learned():
    cost = learned(*[(n, 5_000_000 + 200_000 * n) for n in (1, 32, 7, 20, 3)] * 20)
    assert cost.is_known
    assert cost.line == pytest.approx((5_000_000, 200_000), rel=1e-3)
    assert cost.surely(10) == pytest.approx(7_000_000, rel=0.05)


def test_the_cost_of_calls_of_one_size_scales_with_the_cells():
    """A larger call is not predicted to be as cheap as the one that was seen."""
    assert learned((4, 400), (4, 400)).surely(8) == 800


@pytest.mark.parametrize(
    "calls, line",
    [
        ([(1, 900), (9, 500)], (pytest.approx(700, rel=0.02), 0.0)),  # larger calls were faster
        ([(10, 100), (20, 400)], (0.0, pytest.approx(50 / 3, rel=0.02))),  # below 0 at no cells
    ],
)
def test_neither_base_nor_rate_is_negative(calls, line):
    assert learned(*calls).line == line


def test_the_rate_follows_a_change_of_speed():
    before, after = [(n, 100 * n) for n in (1, 2, 3, 4)], [(n, 300 * n) for n in (1, 2)]
    cost = learned(*before * 100, *after * 300)
    assert cost.line[1] == pytest.approx(300, rel=0.05)


def test_a_slow_call_counts_as_four_times_its_prediction_at_most():
    usual = [(n, 100 * n) for n in (1, 2, 3, 4)] * 30
    slow = learned(*usual, (2, 10**9)).line
    four = learned(*usual, (2, 800)).line
    assert slow == pytest.approx(four, rel=0.02)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**12)), max_size=60))
def test_predictions_are_never_negative_and_never_fall_with_more_cells(calls):
    cost = learned(*calls)
    assert min(cost.line) >= 0
    assert cost.surely(1) <= cost.surely(10**6)
