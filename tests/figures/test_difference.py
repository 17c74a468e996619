"""Differences of two runs, and their intervals, from rows made by hand."""

from dataclasses import replace
from random import Random

import pytest

from headway.core.lane import Budget
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.figures.intervals.difference import (
    IN_BUDGET,
    lane_differences,
    rate_differences,
    same_requests,
)
from headway.figures.warm_up import without_warm_up
from headway.runs.outcome import Outcome
from headway.runs.remote.client_row import ClientRow

WINDOW = (0, 10_000)
BUDGET = Budget(ttft=250)


def row(number, arrived, ttft, finish=Finish.LENGTH):
    first = NEVER if ttft == NEVER else arrived + ttft
    end = arrived + 500 if ttft == NEVER else first + 50
    times = (arrived, arrived + 1, first, first if ttft == NEVER else end, end)
    return RequestRow(str(number), "chat", BUDGET, finish, *times, 10, 6, 0, 0, 0, 0)


def run(*ttfts, arrived=None):
    at = arrived or [k * 10_000 // len(ttfts) for k in range(len(ttfts))]
    rows = tuple(row(k, at[k], ttft) for k, ttft in enumerate(ttfts))
    return Outcome({"chat": len(rows)}, rows, (), 12_000, True)


def client(name, asked):
    return ClientRow(name, 0, 1, 200, "", asked, False, ())


def noisy(seed, shift=0):
    """TTFTs that the load of each moment lengthens. Pairing removes this common part."""
    moments, own = Random("moments"), Random(seed)
    loads = [moments.randrange(0, 200) for _ in range(20)]
    return [150 + loads[k // 10] + own.randrange(5) + shift for k in range(200)]


def by_metric(first, second, paired):
    found = lane_differences((first, second), "chat", (WINDOW, WINDOW), paired)
    return {each.metric: each for each in found}


def test_a_run_does_not_differ_from_itself():
    mine = run(*noisy("a"))
    for each in by_metric(mine, mine, True).values():
        assert each.change == each.interval.low == each.interval.high == 0
        assert each.verdict == "unclear"
    assert all(each.change == 0 for each in rate_differences((mine, mine), (0, 0)))


def test_amounts_per_second_leave_out_a_backlog_answered_in_the_warm_up():
    made = run(*[100] * 40)
    night = tuple(
        replace(row(k, 0, 100), id=f"n{k}", lane="night", budget=Budget()) for k in range(60)
    )
    first = without_warm_up(made, 1_000)
    offered = {"chat": 40, "night": 60}
    second = without_warm_up(replace(made, requests=made.requests + night, offered=offered), 1_000)
    for each in rate_differences((first, second), (1_000, 1_000)):
        assert each.counts == (36, 36) and each.change == 0


def test_pairing_removes_the_noise_that_both_runs_share():
    first, second = run(*noisy("a")), run(*noisy("b", shift=20))
    paired, apart = (by_metric(first, second, kind)["TTFT p50"] for kind in (True, False))
    assert paired.change == apart.change == pytest.approx(20, abs=8)
    assert paired.interval.low < 20 < paired.interval.high
    narrow, wide = (each.interval.high - each.interval.low for each in (paired, apart))
    assert narrow < wide / 3
    assert paired.verdict == "worse" and apart.verdict == "unclear"


def test_more_requests_in_budget_or_shorter_waits_make_the_second_run_better():
    first, second = run(*noisy("a")), run(*noisy("a", shift=-100))
    found = by_metric(first, second, True)
    shares = [sum(ttft <= 250 for ttft in noisy("a", shift)) / 200 for shift in (0, -100)]
    assert [found[IN_BUDGET].first, found[IN_BUDGET].second] == shares
    assert found[IN_BUDGET].change == shares[1] - shares[0] > 0
    assert found[IN_BUDGET].verdict == found["TTFT p50"].verdict == "better"
    assert by_metric(second, first, True)[IN_BUDGET].verdict == "worse"


def test_few_requests_have_no_percentile_and_simultaneous_ones_no_interval():
    few = by_metric(run(*[100] * 9), run(*[100] * 9), True)
    assert list(few) == [IN_BUDGET] and few[IN_BUDGET].interval.is_empty
    assert not few[IN_BUDGET].is_sure
    at_once = run(*[100] * 40, arrived=[0] * 40), run(*[900] * 40, arrived=[0] * 40)
    found = by_metric(*at_once, True)
    assert found["TTFT p50"].change == 800 and found["TTFT p50"].interval.is_empty


def test_shares_of_0_and_1_have_intervals_from_the_number_of_requests():
    all_good, none_good = run(*[100] * 26), run(*[900] * 26)
    edge = 0.025 ** (1 / 26)
    alike = by_metric(all_good, all_good, True)[IN_BUDGET]
    ends = (edge - 1, 1 - edge)
    assert (alike.interval.low, alike.interval.high) == pytest.approx(ends)
    assert alike.change == 0 and alike.verdict == "unclear"
    apart = by_metric(none_good, all_good, True)[IN_BUDGET]
    assert (apart.interval.low, apart.interval.high) == pytest.approx((2 * edge - 1, 1))
    assert apart.verdict == "better"


def test_a_first_token_that_never_came_is_later_than_every_time():
    lost = run(*[NEVER] * 200)
    change = by_metric(run(*noisy("a")), lost, True)["TTFT p50"]
    assert change.change == float("inf") and change.verdict == "worse"
    assert by_metric(lost, lost, True)["TTFT p50"].change == 0


def test_requests_for_longer_answers_are_not_the_same():
    short = run(*[100] * 20)
    rows = tuple(replace(each, generated=12) for each in short.requests)
    longer = replace(short, requests=rows)
    assert same_requests(short, short, "chat") and not same_requests(short, longer, "chat")
    stopped = tuple(replace(each, generated=3, finish=Finish.STOP) for each in short.requests)
    assert same_requests(short, replace(short, requests=stopped), "chat"), "it may end earlier"


def test_a_client_knows_what_it_asked_for():
    rows = run(*[100] * 3).requests
    asked = {
        tokens: replace(run(*[100] * 3), client=tuple(client(row.id, tokens) for row in rows))
        for tokens in (6, 9)
    }
    assert same_requests(asked[6], asked[6], "chat")
    assert not same_requests(asked[6], asked[9], "chat")


def test_missing_rows_count_as_not_served():
    whole = run(*[100] * 200)
    half = replace(whole, requests=whole.requests[:100])
    found = by_metric(whole, half, False)
    assert (found[IN_BUDGET].first, found[IN_BUDGET].second) == (1, 0.5)
    assert found["TTFT p95"].second == NEVER and found["TPOT p50"].counts == (200, 100)


def test_runs_with_other_counts_or_arrival_times_do_not_have_the_same_requests():
    mine = run(*[100] * 20)
    assert same_requests(mine, run(*[300] * 20), "chat")
    assert not same_requests(mine, run(*[100] * 21), "chat")
    assert not same_requests(mine, run(*[100] * 20, arrived=list(range(20))), "chat")


def test_answers_and_tokens_per_second_are_over_the_runs_time():
    slow = replace(run(*[100] * 200), nanoseconds=24_000)
    answers, tokens = rate_differences((run(*[100] * 200), slow), (0, 0))
    assert answers.first == pytest.approx(200 / 12e-6) and answers.second == answers.first / 2
    assert tokens.first == pytest.approx(1_200 / 12e-6) and tokens.change == -tokens.second
    assert answers.interval.low < answers.change < answers.interval.high
