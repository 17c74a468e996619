"""The search for a capacity, on known curves."""

from math import inf

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headway.errors import SettingError
from headway.figures.capacity import REQUIRED_ATTAINMENT, TOLERANCE, TriedRate, search_capacity


def falling(limit):
    """Kept up to this rate; beyond it only the strict lane misses its budget."""
    return lambda rate: {"strict": 1.0 if rate <= limit else limit / rate / 2, "lax": 1.0}


@given(
    limit=st.floats(1.0, 999.0),
    low=st.floats(0.05, 1.0),
    tolerance=st.sampled_from([0.005, TOLERANCE, 0.1]),
)
def test_the_limit_lies_in_the_bracket_and_the_bracket_within_the_tolerance(limit, low, tolerance):
    found = search_capacity(falling(limit), low, 1_000.0, tolerance)
    kept, broken = found.bracket
    assert found.rate == kept <= limit < broken <= kept * (1 + tolerance)
    assert found.is_bounded and not found.skipped
    tried = {each.rate: each.kept for each in found.tried}
    assert len(tried) == len(found.tried), "no rate is simulated twice"
    assert tried[kept] and not tried[broken]


@given(
    rates=st.lists(st.integers(1, 200), min_size=1, max_size=8, unique=True),
    limit=st.floats(1.0, 199.0),
)
def test_known_rates_bound_the_search_and_are_not_tried_again(rates, limit):
    serve, asked = falling(limit), []

    def counted(rate):
        asked.append(rate)
        return serve(rate)

    known = [TriedRate(float(rate), serve(float(rate))) for rate in rates]
    found = search_capacity(counted, 0.5, 200.0, known=known)
    assert not set(asked) & {float(rate) for rate in rates}
    if min(rates) <= limit < max(rates):
        event("bracketed by what was known")
        inside = max(r for r in rates if r <= limit), min(r for r in rates if r > limit)
        assert all(inside[0] < rate < inside[1] for rate in asked)
    else:
        event("all of it kept or none")
    if limit < max(rates):
        assert found.rate <= limit < found.bracket[1] <= found.rate * (1 + TOLERANCE)


def test_below_known_rates_that_all_broke_the_search_begins_at_the_lowest():
    known = [TriedRate(rate, {"chat": 0.2}) for rate in (40.0, 60.0)]
    found = search_capacity(falling(5.0), 1.0, 100.0, tolerance=0.1, known=known)
    assert found.bracket[0] <= 5.0 < found.bracket[1] <= 1.1 * found.bracket[0]
    assert [each.rate for each in found.tried[:4]] == [40, 60, 1, 20.5]


def test_a_kept_rate_between_the_lowest_and_the_known_ones_is_found():
    def serve(rate):
        return {"chat": min(1.0, rate / 8) if rate <= 20 else 0.0}

    known = [TriedRate(rate, serve(rate)) for rate in (40.0, 60.0)]
    found = search_capacity(serve, 1.0, 100.0, known=known)
    assert found.rate <= 20 < found.bracket[1] <= found.rate * 1.02
    assert found.skipped == (1.0, 2.0, 4.0)


def test_if_the_lowest_rate_breaks_too_the_search_goes_on_above_the_known_ones():
    def serve(rate):
        return {"chat": min(1.0, rate / 100)}

    found = search_capacity(
        serve, 1.0, 200.0, known=[TriedRate(rate, serve(rate)) for rate in (4.0, 60.0)]
    )
    assert [each.rate for each in found.tried] == [4, 60, 1, 2, 120, 200]
    assert found.rate == 200 and not found.is_bounded


def test_the_search_doubles_then_bisects():
    found = search_capacity(falling(5.0), 1.0, 100.0, tolerance=0.1)
    assert [each.rate for each in found.tried] == [1, 2, 4, 8, 6, 5, 5.5]
    assert found.bracket == (5, 5.5)


def test_there_is_no_capacity_if_every_rate_breaks():
    found = search_capacity(lambda rate: {"chat": 0.9 / rate}, 1.0, 100.0)
    assert found.rate == 0 and found.bracket == (0, 1.0)
    assert [each.rate for each in found.tried] == [1.0, 2.0], "it gets worse, so the search ends"


def test_the_capacity_is_a_lower_bound_if_no_rate_breaks():
    found = search_capacity(lambda rate: {"chat": 1.0}, 1.0, 10.0)
    assert found.rate == 10.0 and found.bracket == (10.0, inf) and not found.is_bounded
    assert [each.rate for each in found.tried] == [1, 2, 4, 8, 10]


def test_a_capacity_above_broken_low_rates_is_found():
    def serve(rate):
        return {"chat": min(1.0, rate / 8) if rate <= 20 else 0.0}

    found = search_capacity(serve, 1.0, 100.0)
    assert found.rate <= 20 < found.bracket[1] <= found.rate * 1.02
    assert found.skipped == (1.0, 2.0, 4.0)


def test_every_lane_must_keep_its_share_and_the_share_itself_is_enough():
    assert TriedRate(1.0, {"a": REQUIRED_ATTAINMENT, "b": 1.0}).kept
    assert not TriedRate(1.0, {"a": REQUIRED_ATTAINMENT - 1e-9, "b": 1.0}).kept
    assert not TriedRate(1.0, {}).kept, "without requests nothing is kept"


def test_rates_without_requests_bound_nothing():
    def beyond(start):
        return lambda rate: falling(5.0)(rate) if rate > start else {}

    found = search_capacity(beyond(3.0), 1.0, 100.0, tolerance=0.1)
    assert [each.rate for each in found.tried] == [1, 2, 4, 8, 6, 5, 5.5]
    assert found.bracket == (5, 5.5) and not found.skipped
    again = search_capacity(beyond(3.0), 1.0, 100.0, tolerance=0.1, known=[TriedRate(2.0, {})])
    assert again == found, "a known rate without requests does not help"
    empty = search_capacity(beyond(100.0), 1.0, 10.0)
    assert [each.rate for each in empty.tried] == [1, 2, 4, 8, 10]
    assert empty.bracket == (0, inf)


def test_a_search_ends_if_there_are_no_requests_between_the_bounds():
    def without(low, high):
        return lambda rate: {} if low < rate < high else falling(5.0)(rate)

    assert search_capacity(without(4.5, 8.0), 1.0, 100.0).bracket == (4, 8)
    assert search_capacity(without(3.0, 4.5), 1.0, 100.0, tolerance=0.1).bracket == (5, 5.375)


@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (1.0, inf)])
def test_impossible_bounds_are_refused(low, high):
    with pytest.raises(SettingError, match="between two rates"):
        search_capacity(falling(1.0), low, high)
