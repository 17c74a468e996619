"""The interval of a capacity, on known tallies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.figures.capacity_interval import (
    BLOCKS,
    capacity_interval,
    enough_requests,
    seconds_for_enough,
    sum_repeats,
    tally_blocks,
)
from tests.figures.test_lane_figures import outcome, request

EVEN = [(10, 10)] * BLOCKS


def halved(misses):
    """Blocks of ten requests; the last few blocks miss half of them."""
    return [(10, 10)] * (BLOCKS - misses) + [(10, 5)] * misses


def test_an_interval_of_equal_draws_is_widened_to_hold_the_capacity():
    tried = {1.0: {"a": EVEN}, 2.0: {"a": EVEN}, 3.0: {"a": [(10, 9)] * BLOCKS}}
    sure = capacity_interval(tried, 2.0, 1, 0)
    assert sure.high == pytest.approx(2.5), "half way between all and nine of ten good"
    assert sure.low == 2.0, "the capacity, which every draw is above"
    assert (sure.counted, sure.lane, sure.is_enough) == (200, "a", True)


def test_a_capacity_decided_by_a_few_blocks_has_a_wide_interval():
    tried = {1.0: {"a": EVEN}, 2.0: {"a": halved(2)}, 4.0: {"a": halved(6)}}
    sure = capacity_interval(tried, 2.0, 1, 0)
    assert 1.0 < sure.low < 2.0 < sure.high < 4.0
    assert sure == capacity_interval(tried, 2.0, 1, 0), "the same seed gives the same draws"


def test_the_lane_with_the_fewest_requests_is_named_unless_it_has_none():
    lanes = {"many": EVEN, "few": [(1, 1)] * BLOCKS, "none": [(0, 0)] * BLOCKS}
    sure = capacity_interval({1.0: lanes}, 1.0, 1, 0)
    assert (sure.counted, sure.lane, sure.is_enough) == (20, "few", False)
    twice = {lane: [(2 * a, 2 * b) for a, b in each] for lane, each in lanes.items()}
    assert sum_repeats([lanes, lanes]) == {lane: tuple(each) for lane, each in twice.items()}
    assert capacity_interval({1.0: twice}, 1.0, 2, 0).counted == 20, (
        "a repeat has the same requests"
    )


def test_without_a_capacity_there_is_no_interval():
    none = capacity_interval({1.0: {"a": EVEN}, 2.0: {"a": EVEN}}, 0.0, 1, 0)
    assert (none.low, none.high) == (0.0, 0.0) and none.counted == 200, "but the number of requests"


@given(count=st.integers(1, 60), missing=st.integers(0, 3))
def test_every_offered_request_is_in_a_block(count, missing):
    rows = [request(f"r{at}") for at in range(count)]
    run = outcome(rows, offered={"chat": count + missing})
    blocks = tally_blocks(run, 0, 100)["chat"]
    assert len(blocks) == BLOCKS and rows[0].budget != Budget()
    assert sum(a for a, _ in blocks) == count + missing
    assert sum(b for _, b in blocks) == sum(row.good for row in rows)


@pytest.mark.parametrize(
    "share, enough",
    [(0.5, 10), (0.9, 50), (0.95, 100), (0.99, 500), (0.999, 5_000), (1.0, 5_000)],
)
def test_a_share_needs_as_many_requests_as_its_percentile(share, enough):
    sure = capacity_interval({1.0: {"a": [(5, 5)] * BLOCKS}}, 1.0, 1, 0, share)
    assert sure.enough == enough_requests(share) == enough
    assert (sure.counted, sure.is_enough) == (100, enough <= 100)


def test_the_seconds_for_enough_requests_include_a_margin():
    assert seconds_for_enough(12.0, 21) == 60 and seconds_for_enough(10.0, 100) == 11
    assert seconds_for_enough(10.0, 100, 500) == 53
