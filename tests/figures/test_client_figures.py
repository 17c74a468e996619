"""A client's figures: percentiles by metric, intervals by blocks of time, tokens per second."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.figures.client_figures import client_lane, client_totals
from headway.figures.intervals.block_bootstrap import (
    CELLS,
    drawn_percentiles,
    mean_interval,
    percentile_intervals,
)
from headway.figures.percentile import percentile
from headway.figures.warm_up import without_warm_up
from headway.report.analysis import values_of
from headway.runs.outcome import Outcome
from headway.runs.remote.client_row import ClientRow

MS = 1_000_000
WINDOW = (0, 1_000 * MS)


def pair(number, ttft=10, gaps=(5, 5), finish=Finish.LENGTH, **client):
    """The engine's and the client's row of a request. number: its arrival. Times in ms."""
    first = number + ttft
    last = first + sum(gaps)
    row = RequestRow(
        id=str(number),
        lane="a",
        budget=Budget(ttft=20 * MS),
        finish=finish,
        arrived=number * MS,
        first_scheduled=NEVER,
        first_token=first * MS if ttft else NEVER,
        last_token=last * MS if ttft else NEVER,
        finished=(last + 1) * MS,
        prompt=7,
        generated=len(gaps) + 1 if ttft else 0,
        cached=0,
        discarded=0,
        preemptions=0,
        nanoseconds=0,
    )
    said = {"lag": MS, "attempts": 1, "status": 200, "error": "", "asked": len(gaps) + 1}
    said |= {"left": False, "gaps": tuple(gap * MS for gap in gaps)} | client
    return row, ClientRow(str(number), **said)


def outcome(pairs, missing=0):
    rows, client = zip(*pairs, strict=True)
    end = max(row.finished for row in rows)
    return Outcome({"a": len(rows) + missing}, rows, (), end, not missing, client)


def lane(pairs, missing=0):
    made = outcome(pairs, missing)
    return client_lane(made, made, "a", (0, 20 * MS))


def test_latency_percentiles_rank_tokens_that_never_came_last():
    refused = {"finish": Finish.REFUSED, "ttft": 0, "gaps": (), "status": 429, "error": "full"}
    pairs = [pair(n, ttft=n + 1, gaps=(2, 4)) for n in range(9)] + [pair(9, **refused)]
    found = lane(pairs)
    ttft, itl, e2e = (found.latency[name] for name in ("ttft", "itl", "e2e"))
    assert (ttft.count, ttft.quantiles) == (10, (5 * MS, None, None, None))
    assert (ttft.most, ttft.mean) == (NEVER, 5.0 * MS), "the mean is of what came"
    assert (itl.count, itl.most, itl.mean) == (18, 4 * MS, 3.0 * MS)
    assert found.latency["tpot"].count == 9 and e2e.most == NEVER
    assert found.errors == (("429: full", 1),) and found.attempts == 10
    interrupted = lane(pairs[:9], missing=11)
    assert interrupted.latency["ttft"].quantiles[0] == NEVER
    assert interrupted.attainment.low < 9 / 20 < interrupted.attainment.high == 1


def test_an_interrupted_run_has_no_goodput_interval_and_counts_missing_requests():
    pairs = [pair(n) for n in range(12)]
    assert not lane(pairs).goodput.is_empty
    found = lane(pairs, missing=30)
    assert found.goodput.is_empty and not found.attainment.is_empty
    made = outcome(pairs, missing=30)
    for metric in ("ttft", "e2e"):
        values = values_of(made, "a", metric)
        assert len(values) == 42 and values.count(NEVER) == 30
    assert len(values_of(made, "a", "tpot")) == 12


def test_callers_that_were_made_to_leave_are_counted_apart():
    pairs = [pair(n) for n in range(12)]
    pairs += [pair(12, finish=Finish.CANCELLED, left=True), pair(13, attempts=3, asked=9)]
    whole = outcome(pairs)
    counted = without_warm_up(whole, 2 * MS)
    assert counted.offered == {"a": 11} and len(counted.client) == 11
    found = client_lane(counted, whole, "a", (2 * MS, 14 * MS))
    assert (found.left, found.retried, found.attempts, found.short) == (1, 1, 13, 1)
    assert (found.attainment.low, found.attainment.high) == (pytest.approx(0.05 ** (1 / 11)), 1)
    assert found.goodput.high == pytest.approx(13 / (counted.nanoseconds / 1e9)), "two came before"
    assert found.goodput.low == pytest.approx(found.goodput.high * 0.05 ** (1 / 13))


def test_only_a_whole_answer_counts_as_shorter_than_asked():
    pairs = [pair(0), pair(1, asked=9), pair(2, asked=9, finish=Finish.ERROR)]
    assert lane(pairs).short == 1


def test_the_first_request_of_a_trace_is_not_taken_for_a_backlog():
    """A lane is a backlog only if all of its requests arrive at time 0."""
    rows, client = zip(*[pair(n) for n in (0, 1, 9)], strict=True)
    rows = tuple(replace(row, budget=Budget()) for row in rows)
    made = outcome(list(zip(rows, client, strict=True)))
    assert [row.id for row in without_warm_up(made, 2 * MS).requests] == ["9"]


def test_tokens_per_second_count_the_time_up_to_the_last_end():
    pairs = [pair(n) for n in range(10)]
    pairs.append(pair(90, finish=Finish.ERROR, gaps=(9,)))  # ends at 110 ms
    found = client_totals(outcome(pairs))
    assert found.input_tokens_per_second == pytest.approx(70 / 0.110)
    assert found.output_tokens_per_second == pytest.approx(32 / 0.110)
    assert found.tokens_per_second == pytest.approx(102 / 0.110)
    assert (found.lag[0], found.most_lag) == (MS, MS)


@pytest.mark.evidence
@given(st.lists(st.integers(0, 10**9), min_size=100, max_size=3_000), st.randoms())
def test_interval_ends_are_in_order_and_lie_within_the_values(values, random):
    random.shuffle(values)
    timed = [(at * WINDOW[1] // len(values), value) for at, value in enumerate(values)]
    (half, most) = percentile_intervals(timed, WINDOW, (50.0, 95.0))
    assert min(values) <= half.low <= half.high <= max(values)
    assert half.low <= most.high and most.low <= most.high
    mean = mean_interval(timed, WINDOW)
    assert min(values) <= mean.low <= mean.high <= max(values)


def test_a_bad_moment_widens_the_interval_and_equal_blocks_have_zero_width():
    even = [(at * MS, at % 5) for at in range(1_000)]
    interval = mean_interval(even, WINDOW)
    assert (interval.low, interval.high) == (2.0, 2.0)
    burst = [(at, 500 if at < 100 * MS else value) for at, value in even]
    assert mean_interval(burst, WINDOW).high > 60 and mean_interval(burst, WINDOW).low < 40
    assert percentile_intervals(even, WINDOW, (50.0,))[0].high == 2


@pytest.mark.parametrize("budget", [Budget(), Budget(e2e=MS)])
def test_the_first_request_of_a_trace_is_warm_up_and_a_backlog_is_not(budget):
    trace = [(replace(row, budget=budget), client) for row, client in map(pair, (0, 30, 150))]
    backlog = [
        (replace(row, id=id, lane="b", budget=budget), client._replace(id=id))
        for (row, client), id in zip([pair(0)] * 2, ("b-0", "b-1"), strict=True)
    ]
    made = replace(outcome(trace + backlog), offered={"a": 3, "b": 2})
    for each in (made, replace(made, client=())):  # of a server, and of an engine here
        after = without_warm_up(each, 100 * MS)
        assert [row.id for row in after.requests] == ["150", "b-0", "b-1"]
        assert [row.id for row in after.before] == ["0", "30"]
        assert after.offered == {"a": 1, "b": 2}


def test_too_few_values_have_no_interval():
    few = [(at * 100 * MS, at) for at in range(9)]
    assert mean_interval(few, WINDOW).is_empty
    assert percentile_intervals(few, WINDOW, (50.0, 95.0))[0].is_empty
    ten = percentile_intervals([*few, (900 * MS, 9)], WINDOW, (50.0, 95.0))
    assert [each.is_empty for each in ten] == [False, True]
    assert mean_interval([], WINDOW).is_empty
    assert percentile_intervals([], WINDOW, (50.0,))[0].is_empty


def test_few_values_have_the_percentiles_of_many_that_repeat_them():
    """Few are walked over, and many are sorted into cells."""
    few = [(at * 37 % 1_000 * MS, at * 7_919 % 101) for at in range(100)]
    assert len(few) <= CELLS < len(few * 6)
    found = [drawn_percentiles(each, WINDOW, (50.0, 95.0)) for each in (few, few * 6)]
    assert found[0] == found[1] and len({*found[0][0]}) > 10


def test_values_that_came_at_one_moment_have_no_interval():
    at_once = [(at // 50 * MS, at) for at in range(200)]  # in 4 ms: one of the twenty blocks
    assert mean_interval(at_once, WINDOW).is_empty
    assert all(each.is_empty for each in percentile_intervals(at_once, WINDOW, (50.0, 95.0)))
    found = client_lane(*[outcome([pair(0, ttft=n) for n in range(1, 41)])] * 2, "a", WINDOW)
    assert found.attainment.is_empty and found.goodput.is_empty
    assert found.latency["ttft"].sure[0].is_empty and found.latency["ttft"].quantiles[0]


def test_a_percentile_may_have_a_decimal_place():
    assert percentile(range(5_000), 99.9) == 4_994
    assert percentile(range(4_999), 99.9) is None
