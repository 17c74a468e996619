"""What is learned from promises that were kept or not, and how the next ones are corrected."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headway.core.cost.lengths import ALLOWED, ENOUGH, LEARNED
from headway.core.cost.promise import NO_PROMISE, Promise
from headway.core.cost.promises import HIGHEST, LOWEST, SURE, Promises, Spans


def made(at=0, end=1_000, wait=0, span=1_000):
    return Promise(at, at + 10, end, at + 10, wait, span, LEARNED)


def test_the_wait_for_a_first_token_is_corrected_by_the_median():
    known = Promises()
    for late in range(ENOUGH):
        assert known.wait("chat", 500) == 500, "too few are known"
        known.first_came("chat", made(wait=100), 10 + 100 + 10 * late)
    known.first_came("chat", made(wait=100), 10 + 100 + 10 * ENOUGH)
    assert known.wait("chat", 500) == 500 * (100 + 5 * ENOUGH) // 100
    assert known.wait("voice", 500) == 500, "another lane"


def test_a_first_token_of_the_first_step_says_nothing_about_waits():
    known = Promises()
    for _ in range(2 * ENOUGH):
        known.first_came("chat", made(), 900)
        known.first_came("chat", NO_PROMISE, 900)
    assert known.wait("chat", 500) == 500


def test_first_tokens_that_came_before_the_step_was_to_end_count_as_no_wait():
    known = Promises()
    for _ in range(ENOUGH):
        known.first_came("chat", made(wait=100), 5)
    assert known.wait("chat", 500) == 500, "a ratio of 0 corrects nothing"


def test_the_end_is_corrected_by_the_quantile_that_covers_nine_of_ten():
    known = Promises()
    for took in range(1, 101):
        known.ended("chat", made(at=50, end=0, span=100), 50 + took)
    assert 90 <= known.span("chat", LEARNED, 100) <= 100
    assert known.span("chat", ALLOWED, 100) == 100, "other lengths, other errors"
    assert known.span("voice", LEARNED, 100) == 100
    known.ended("chat", NO_PROMISE, 50)
    assert 90 <= known.span("chat", LEARNED, 100) <= 100


@given(st.floats(0.05, 20), st.integers(0, 99))
def test_whatever_the_bias_nine_of_ten_are_covered(bias, seed):
    spans, random, covered = Spans(), Random(seed), 0
    for _ in range(2_000):
        took = max(1, round(bias * random.lognormvariate(0, 1) * 1_000))
        inside = took <= spans.corrected(1_000)
        covered += inside
        spans.ended(took, inside)
    assert 0.87 < covered / 2_000 < 0.93


@given(st.lists(st.booleans(), max_size=400))
def test_the_quantile_stays_within_its_bounds(covered):
    spans = Spans()
    for each in covered * 10:
        spans.ended(1_000, each)
    assert LOWEST <= spans._asked <= HIGHEST


def test_the_quantile_falls_while_too_many_are_covered_and_rises_when_one_is_not():
    spans = Spans()
    before = spans._asked
    assert before == SURE * 1_000_000
    spans.ended(1_000, True)
    assert spans._asked == before - 500
    spans.ended(1_000, False)
    assert spans._asked == before - 500 + 4_500


def test_the_pace_of_a_lane_is_that_of_its_recent_answers():
    known = Promises()
    assert known.pace("chat") == 0
    known.decoded("chat", 1_000, 10)
    assert known.pace("chat") == 100
    for _ in range(500):
        known.decoded("chat", 3_000, 10)
    assert 290 < known.pace("chat") <= 300 and known.pace("voice") == 0
