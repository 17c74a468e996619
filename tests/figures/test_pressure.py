"""The pressure that a strategy relieves or creates follows from the rows."""

from dataclasses import replace

import pytest

from headway.core.lane import Budget
from headway.core.request import NEVER, Finish
from headway.figures.pressure import pressure_cards, readings_of
from headway.figures.warm_up import without_warm_up
from headway.report.formatting import duration, milliseconds, pressed, share, tenths
from headway.runs.outcome import Outcome
from headway.traffic.endpoint import LABELLING, SUPPORT
from tests.figures.test_lane_figures import request, step

MS = 1_000_000
ENDPOINTS = (SUPPORT, LABELLING)


def outcome(ttft, gap, padding=0, unserved=0, labelled=40 * MS):
    rows = [request(f"r{i}", "support", ttft=ttft, gap=gap) for i in range(10 - unserved)]
    cancelled = request("", "support", finish=Finish.CANCELLED, ttft=NEVER)
    rows += [replace(cancelled, id=f"c{i}") for i in range(unserved)]
    rows.append(replace(request("l", "labelling", ttft=1), finished=labelled))
    width = 10 + padding
    steps = (step(1, 0, 50 * MS, rows=1, tokens=10, width=width),)
    return Outcome({"support": 10, "labelling": 1}, tuple(rows), steps, 500 * MS, complete=True)


def test_gains_and_losses_are_the_largest_ratios_to_the_baseline():
    made = pressure_cards(
        {
            "slow": outcome(ttft=90 * MS, gap=2 * MS),
            "middle": outcome(ttft=30 * MS, gap=3 * MS),
            "quick": outcome(ttft=10 * MS, gap=6 * MS),
        },
        ENDPOINTS,
    )
    assert pressed(made["slow"]) == (
        "relieved the time per token of support (TPOT p50 2 ms: 3.0 times less than quick's "
        "6 ms; middle 3 ms); created the first-token wait of support (TTFT p50 90 ms: 9.0 times "
        "quick's 10 ms; middle 30 ms)"
    )
    assert made["quick"].relieved.other == "slow" == made["quick"].created.other
    assert made["middle"].relieved.ratio == pytest.approx(30 / 90)
    assert made["middle"].created.ratio == pytest.approx(30 / 10)


def test_waste_counts_as_a_pressure():
    made = pressure_cards({"a": outcome(9, 2), "b": outcome(9, 2, padding=10)}, ENDPOINTS)
    assert pressed(made["a"]) == "relieved nothing; created nothing", "zero cannot be a denominator"
    made = pressure_cards(
        {"a": outcome(9, 2, padding=1), "b": outcome(9, 2, padding=10)}, ENDPOINTS
    )
    assert pressed(made["b"]).startswith("relieved nothing; created computing for nobody (waste 5")


def test_the_time_of_a_backlog_is_that_of_its_last_answer():
    made = pressure_cards({"a": outcome(9, 2), "b": outcome(9, 2, labelled=120 * MS)}, ENDPOINTS)
    assert pressed(made["b"]) == (
        "relieved nothing; created the time that labelling takes (last answer after 120 ms: "
        "3.0 times a's 40 ms)"
    )


def test_a_median_that_never_came_has_no_ratio_and_two_are_not_compared():
    made = pressure_cards({"a": outcome(50 * MS, 2), "b": outcome(9, 2, unserved=6)}, ENDPOINTS)
    assert "created the first-token wait of support (TTFT p50 never, a's 50 ms)" in pressed(
        made["b"]
    )
    assert "relieved the first-token wait of support (TTFT p50 50 ms, b's never)" in pressed(
        made["a"]
    )
    both = {"a": outcome(9, 2, unserved=6), "b": outcome(9, 2, unserved=7)}
    assert "TTFT" not in pressed(pressure_cards(both, ENDPOINTS)["a"])


def test_runs_are_compared_by_the_highest_percentile_that_all_of_them_have():
    def made(count, ttft):
        rows = [request(f"r{i}", "support", ttft=ttft, gap=2 * MS) for i in range(count)]
        rows.append(request("l", "labelling", ttft=1))
        offered = {"support": count, "labelling": 1}
        return Outcome(offered, tuple(rows), (), 500 * MS, complete=True)

    cards = pressure_cards({"a": made(100, 90 * MS), "b": made(99, 30 * MS)}, ENDPOINTS)
    assert "relieved the first-token wait of support (TTFT p50 30 ms: 3.0" in pressed(cards["b"])
    cards = pressure_cards({"a": made(100, 90 * MS), "b": made(100, 30 * MS)}, ENDPOINTS)
    assert "relieved the first-token wait of support (TTFT p95 30 ms: 3.0" in pressed(cards["b"])


def test_the_device_time_of_an_answer_counts_what_ended_after_the_warm_up():
    made = outcome(9, 2)
    late = [replace(row, finished=row.finished + 30 * MS) for row in made.requests[:4]]
    backlog = [replace(row, budget=Budget()) for row in made.requests[4:]]
    steps = tuple(step(k, 10 * k * MS, 9 * MS, rows=1, tokens=1) for k in range(5))
    run = replace(made, requests=(*late, *backlog), steps=steps)
    readings = readings_of(without_warm_up(run, 20 * MS), ENDPOINTS)
    (device,) = (each for each in readings if each.what == "the device time of an answer")
    assert readings[device] == 3 * 9 * MS / (5 * 3), "four, and the backlog's labelling"


def test_a_single_strategy_has_no_card():
    assert pressure_cards({"a": outcome(9, 2)}, ENDPOINTS) == {}


@pytest.mark.parametrize(
    "value, said",
    [(0, "0.0"), (9_949_999, "9.9"), (9_950_000, "10"), (1_234_567_890, "1,235"), (None, "-")],
)
def test_milliseconds_are_formatted(value, said):
    assert milliseconds(value) == said
    assert milliseconds(NEVER) == "never"


def test_durations_and_shares_are_formatted():
    said = [duration(value) for value in (12, 1_500, 2_340_000, 101_400_000, 7_891_000_000, NEVER)]
    assert said == ["12 ns", "1.5 us", "2.34 ms", "101 ms", "7.89 s", "never"]
    below = [share(value) for value in (0.9496, 0.945, 0.9449, 0.95, 0.8996, 0.9)]
    assert below == ["94.9 %", "94.5 %", "94 %", "95 %", "89.9 %", "90 %"]
    assert [tenths(value) for value in (0.94996, 0.95, 0.29, 1)] == [
        "94.9 %",
        "95.0 %",
        "29.0 %",
        "100.0 %",
    ]
    assert [share(value) for value in (0, 0.001, 0.42, 0.996, 1)] == [
        "0 %",
        "0.1 %",
        "42 %",
        "99.6 %",
        "100 %",
    ]
