"""How long answers take from one token to the next: of those that run, else of those that ended."""

from headway.core.cost.paces import ENOUGH, Paces
from headway.core.request import Request
from headway.core.sequences.sequence import Sequence


def answer(tokens, first=100, lane="chat"):
    """It runs, and had its first token then."""
    request = Request("a", (1, 2, 3), 100, 0, lane)
    sequence = Sequence(0, request, [1, 2, 3] + [7] * tokens)
    if tokens:
        sequence.first_token = first
    return sequence


def test_the_pace_of_a_lane_is_that_of_its_answers_that_ended_lately():
    known = Paces()
    assert known.of("chat") == 0
    known.ended("chat", 1_000, 10)
    assert known.of("chat") == 100
    for _ in range(500):
        known.ended("chat", 3_000, 10)
    assert 290 < known.of("chat") <= 300 and known.of("voice") == 0


def test_answers_that_run_tell_it_better():
    known = Paces()
    known.ended("chat", 1_000, 10)
    known.see([answer(5), answer(7, first=200), answer(3, lane="voice"), answer(0)], 1_100)
    assert known.of("chat") == (1_000 + 900) // (4 + 6)
    known.see([answer(ENOUGH, first=200)], 1_100)
    assert known.of("chat") == 100, "too few tokens"
    known.see([answer(ENOUGH + 1, first=200)], 1_100)
    assert known.of("chat") == 900 // ENOUGH
    known.see([], 1_200)
    assert known.of("chat") == 100, "nobody runs"


def test_time_without_a_token_counts():
    known = Paces()
    for now, pace in ((1_100, 100), (2_100, 200)):
        known.see([answer(11)], now)
        assert known.of("chat") == pace
