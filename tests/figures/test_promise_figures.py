"""How well promised times were kept, from rows made by hand."""

from dataclasses import replace

from headway.core.request import NEVER, Finish
from headway.figures.promise_figures import promise_figures
from tests.figures.test_lane_figures import outcome, request


def promised(id, first, end, ttft=100, **more):
    """A request that arrived at 0. end: the promised end, counted from its actual end."""
    row = request(id, ttft=ttft, **more)
    return replace(row, promised_first=first, promised_end=row.finished + end)


def test_the_first_token_error_is_the_median_of_absolute_errors():
    rows = [promised(f"r{i}", 100 + (-1) ** i * i, 0) for i in range(11)]
    found = promise_figures(outcome(rows), "chat")
    assert (found.firsts, found.error_p50, found.error_share_p50) == (11, 5, 50)
    assert promise_figures(outcome(rows[:9]), "chat").error_p50 is None, "too few"


def test_coverage_leaves_out_cancelled_requests():
    rows = [promised(f"r{i}", 100, 0 if i else -1) for i in range(4)]
    rows.append(promised("gone", 100, 50, finish=Finish.CANCELLED))
    found = promise_figures(outcome(rows), "chat")
    assert (found.ended, found.kept, found.coverage) == (4, 3, 0.75)


def test_a_lane_without_promises_has_no_promise_figures():
    rows = [request("r1"), promised("r2", 100, 0, lane="voice")]
    assert promise_figures(outcome(rows), "chat") is None
    assert promise_figures(outcome(rows)).firsts == 1, "of all endpoints"
    lost = replace(promised("r3", 100, 0, finish=Finish.CANCELLED), promised_end=NEVER)
    found = promise_figures(outcome([lost]), "chat")
    assert (found.firsts, found.ended, found.coverage) == (1, 0, None)
