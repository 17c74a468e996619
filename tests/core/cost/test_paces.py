"""The time per output token of a lane: of its running answers, else of the ended ones."""

from headway.core.cost.paces import ENOUGH, Paces
from headway.core.request import Request
from headway.core.sequences.sequence import Sequence


def answer(tokens, first=100, lane="chat"):
    """A running answer with this many tokens, whose first token came at `first`."""
    request = Request("a", (1, 2, 3), 100, 0, lane)
    sequence = Sequence(0, request, [1, 2, 3] + [7] * tokens)
    if tokens:
        sequence.first_token = first
    return sequence


def test_the_pace_of_a_lane_follows_its_latest_ended_answers():
    known = Paces()
    assert known.of("chat") == 0
    known.ended("chat", 1_000, 10)
    assert known.of("chat") == 100
    for _ in range(500):
        known.ended("chat", 3_000, 10)
    assert 290 < known.of("chat") <= 300 and known.of("voice") == 0


def test_the_pace_of_running_answers_overrides_that_of_ended_ones():
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


def test_the_time_since_the_last_token_counts_in_the_pace():
    known = Paces()
    for now, pace in ((1_100, 100), (2_100, 200)):
        known.see([answer(11)], now)
        assert known.of("chat") == pace
