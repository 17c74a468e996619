"""Queue, batch and waits in each part of a run."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Finish
from headway.figures.time_series import (
    longest_ttft,
    mean_batch,
    most_at_once,
    open_spans,
    waiting_spans,
)

PARTS = 5
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda p: (p[0], sum(p))))


def request(arrived, scheduled=NEVER, first=NEVER, finished=100):
    times = (arrived, scheduled, first, first, finished)
    return RequestRow("a", "chat", Budget(), Finish.LENGTH, *times, 1, 1, 0, 0, 0, 0)


def step(began, nanoseconds, rows):
    return StepRow(0, began, nanoseconds, 0, rows, rows, rows, 0, 0, 0, 0, 0)


@given(SPANS, st.integers(1, 20))
def test_most_at_once_equals_the_largest_count_of_any_moment(spans, width):
    found = most_at_once(spans, width, PARTS)
    for part in range(PARTS):
        last = part == PARTS - 1
        moments = range(part * width, 200 if last else (part + 1) * width)
        assert found[part] == max(sum(a <= at < b for a, b in spans) for at in moments)


def test_a_span_counts_in_every_part_in_which_it_is_open():
    assert most_at_once([(0, 35)], 10, PARTS) == [1, 1, 1, 1, 0]
    assert most_at_once([(0, 5), (5, 8)], 10, PARTS) == [1, 0, 0, 0, 0]
    assert most_at_once([(1, 2), (900, 950)], 10, PARTS) == [1, 0, 0, 0, 1]


def test_times_before_the_beginning_count_in_the_first_part():
    assert most_at_once([(-25, -18), (-12, 4), (-3, 12)], 10, PARTS) == [2, 1, 0, 0, 0]
    assert longest_ttft([request(-25, -20, -5)], 10, PARTS)[0] == 20


def test_a_request_waits_until_its_first_step_or_else_to_its_end():
    rows = [request(3, 7, 9, 20), request(4, finished=11)]
    assert waiting_spans(rows) == [(3, 7), (4, 11)]
    assert open_spans(rows) == [(3, 20), (4, 11)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 8))))
def test_the_mean_batch_is_weighted_by_step_time(sizes):
    steps, at = [], 0
    for gap, long, rows in sizes:
        steps.append(step(at + gap, long, rows))
        at += gap + long
    found, width = mean_batch(steps, 7, PARTS), 7
    for part in range(PARTS):
        end = max(at, PARTS * width) if part == PARTS - 1 else (part + 1) * width
        running = [
            each.rows
            for moment in range(part * width, end)
            for each in steps
            if each.began <= moment < each.began + each.nanoseconds
        ]
        if not running:
            assert found[part] is None
        else:
            assert abs(found[part] - sum(running) / len(running)) < 1e-9


def test_the_longest_ttft_of_a_part_is_of_the_requests_that_arrived_in_it():
    rows = [request(1, 2, 9), request(8, 9, 11), request(12, 30, 40), request(41)]
    assert longest_ttft(rows, 10, PARTS) == [8, 28, None, None, NEVER]
    assert longest_ttft([request(70, 71, 75)], 10, PARTS)[-1] == 5, "the last part has the rest"
