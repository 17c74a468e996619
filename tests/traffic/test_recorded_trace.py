"""The requests of a trace: in order, spread over a coarse clock, and made as they are taken."""

from itertools import islice
from random import Random

import pytest

from headway.traffic import recorded_trace
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.trace import Arrival

SECOND = 1_000_000_000


def trace(times):
    return RecordedTrace([Arrival(at, 80, 16) for at in times], "mine", 8.0)


@pytest.mark.parametrize(
    "times, tick",
    [
        ([0, 1, 3], 0),
        ([0, 0, 0, 0, 0], 0),
        ([0, 0, 0, 3 * SECOND, 3 * SECOND, 9 * SECOND, 9 * SECOND], 3 * SECOND),
        ([0, 0, 0, 11 * SECOND, 11 * SECOND, 11 * SECOND], 0),
    ],
    ids=["fine", "one moment", "coarse", "bursts"],
)
def test_the_tick_is_that_of_a_clock_which_tells_few_arrivals_apart(times, tick):
    assert trace(times).tick == tick


def test_arrivals_of_a_tick_are_spread_over_it_and_stay_in_order():
    draw = Random(4)
    at = sorted(5 * SECOND + 3 * SECOND * draw.randrange(40) for _ in range(400))
    mine = trace(at)
    times = [spec.at for spec in mine.specs("chat", 7, 1_024)]
    assert times == sorted(times) == list(mine.times("chat", 7))
    assert len(set(times)) > 390
    since = [one - at[0] for one in at]
    assert [time // (3 * SECOND) for time in times] == [one // (3 * SECOND) for one in since]
    assert times != list(mine.times("voice", 7)) and times != list(mine.times("chat", 8))


def test_no_more_requests_are_made_than_are_taken(monkeypatch):
    """A trace of millions is sampled several times before a run."""
    made, scaled = [], recorded_trace.scaled

    def counted(arrival, *given):
        made.append(arrival)
        return scaled(arrival, *given)

    monkeypatch.setattr(recorded_trace, "scaled", counted)
    mine = trace([n * SECOND for n in range(1_000)])
    taken = list(islice(mine.specs("chat", 0, 1_024), 5))
    assert [spec.at for spec in taken] == [n * SECOND for n in range(5)] and len(made) == 5
    assert len(list(mine.times("chat", 0))) == 1_000 and len(made) == 5
