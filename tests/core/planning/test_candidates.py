"""The order in which waiting sequences are tried for a step."""

from headway.core.planning.candidates import _in_time_first
from headway.core.sequences.sequence import TIMED, UNTIMED, Sequence
from tests.traces import ask


def waiting(number, tier):
    request = ask(f"r{number}", 2, 1)
    sequence = Sequence(number, request, request.tokens(), None, 0)
    sequence.tier = tier
    return sequence


def test_later_tiers_are_tried_last_even_if_the_order_omits_some_in_time():
    filler, first, last = waiting(0, UNTIMED), waiting(1, TIMED), waiting(2, UNTIMED)
    ranked = iter([filler, first, last])
    tried = _in_time_first(ranked, 2, frozenset(), lambda sequence: False)
    assert list(tried) == [first, filler, last], "two wait in time, and one is named"


def test_a_sequence_that_the_order_names_twice_counts_once_as_in_time():
    first, filler, last = waiting(0, TIMED), waiting(1, UNTIMED), waiting(2, TIMED)
    ranked = iter([first, first, filler, last])
    tried = _in_time_first(ranked, 2, frozenset(), lambda sequence: False)
    assert list(tried) == [first, first, last, filler]
