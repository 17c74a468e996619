"""Figures, computed from rows made by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Finish
from headway.figures.client_figures import client_totals
from headway.figures.engine_figures import SERVED, answered_tokens, engine_figures
from headway.figures.lane_figures import goodput, lane_figures
from headway.figures.percentile import percentile
from headway.figures.warm_up import without_warm_up
from headway.runs.outcome import Outcome


def request(id, lane="chat", finish=Finish.LENGTH, ttft=10, generated=3, gap=2):
    first = NEVER if ttft == NEVER else ttft
    last = NEVER if ttft == NEVER else ttft + gap * (generated - 1)
    return RequestRow(
        id=id,
        lane=lane,
        budget=Budget(ttft=20, tpot=5),
        finish=finish,
        arrived=0,
        first_scheduled=NEVER if ttft == NEVER else ttft - 4,
        first_token=first,
        last_token=last,
        finished=last,
        prompt=7,
        generated=0 if ttft == NEVER else generated,
        cached=0,
        discarded=0,
        preemptions=0,
        nanoseconds=9,
    )


def step(number, began, nanoseconds, rows, tokens, held=0, width=0):
    told = {"step": number, "began": began, "nanoseconds": nanoseconds, "rows": rows}
    told |= {"tokens": tokens, "held": held, "width": width}
    return StepRow(**{name: told.get(name, 0) for name in StepRow._fields})


def outcome(requests, steps=(), offered=None, nanoseconds=2_000_000_000):
    offered = offered or {"chat": len(requests)}
    return Outcome(offered, tuple(requests), tuple(steps), nanoseconds, complete=True)


@pytest.mark.parametrize(
    "count, percent, rank",
    [
        (10, 50, 5),  # five beyond it
        (11, 50, 6),
        (100, 95, 95),  # five beyond it
        (101, 95, 96),
        (499, 99, None),  # 4.99 beyond it
        (500, 99, 495),
        (99, 95, None),
        (9, 50, None),
        (0, 50, None),
    ],
)
def test_percentiles_are_nearest_rank_and_need_five_values_beyond(count, percent, rank):
    assert percentile(reversed(range(1, count + 1)), percent) == rank


def test_a_percentile_is_one_of_the_values():
    assert percentile([1] * 5 + [9] * 5, 50) == 1


def test_lane_figures_count_only_the_requests_of_their_lane():
    rows = [request(f"r{i}", ttft=10 + i) for i in range(10)]
    figures = lane_figures(
        outcome([*rows, request("other", lane="x")], offered={"chat": 10}), "chat"
    )
    assert (figures.offered, figures.good, figures.attainment) == (10, 10, 1.0)
    assert (figures.queue_p50, figures.ttft_p50, figures.tpot_p50) == (10, 14, 2)
    assert figures.ttft_p95 is None and figures.queue_p95 is None


def test_unserved_requests_count_as_offered():
    rows = [request(f"r{i}") for i in range(4)]
    rows += [request(f"c{i}", finish=Finish.CANCELLED, ttft=NEVER) for i in range(5)]
    figures = lane_figures(outcome(rows, offered={"chat": 10}), "chat")  # one has no row at all
    assert figures.attainment == 0.4
    assert figures.ttft_p50 == figures.queue_p50 == NEVER, "the fifth of ten was not served"
    assert figures.gaps == 4


def test_tpot_counts_only_requests_with_two_tokens_or_more():
    rows = [request(f"r{i}", generated=1) for i in range(90)]
    rows += [request(f"s{i}", gap=4) for i in range(10)]
    figures = lane_figures(outcome(rows), "chat")
    assert (figures.gaps, figures.tpot_p50, figures.tpot_p95) == (10, 4, None)
    assert figures.good == 100


def test_engine_figures_follow_from_the_requests_and_the_steps():
    rows = [request("a"), request("b", generated=5), request("c", finish=Finish.CANCELLED)]
    steps = [
        step(1, 0, 300, rows=2, tokens=10, width=6),  # 2 x 6 cells: 2 of padding
        step(2, 500, 100, rows=1, tokens=1, held=3, width=1),
        step(3, 600, 100, rows=1, tokens=1),
    ]
    figures = engine_figures(outcome(rows, steps, nanoseconds=1_000))
    assert figures.seconds == 1e-6
    assert (figures.served, figures.unserved) == (2, 1)
    assert figures.requests_per_second == pytest.approx(2e6)
    assert figures.tokens_per_second == pytest.approx(11e6), "c got three before it was cut off"
    assert figures.slots == pytest.approx((2 * 300 + 100 + 100) / 500)
    assert figures.busy == pytest.approx(0.5)
    assert figures.padding == pytest.approx(2 / 17)
    assert figures.held == pytest.approx(3 / 17)
    assert figures.waste == pytest.approx(5 / 17)


def test_an_empty_run_has_figures_of_zero():
    figures = engine_figures(outcome([], nanoseconds=0))
    assert figures.requests_per_second == figures.slots == figures.waste == 0


ROWS = st.lists(
    st.builds(
        lambda finish, arrived, ttft, generated: replace(
            request("r", finish=finish, ttft=ttft, generated=generated), arrived=arrived
        ),
        st.sampled_from([f for f in Finish if f]),
        st.integers(0, 60),
        st.sampled_from([10, 30, NEVER]),
        st.integers(1, 4),
    ),
    max_size=20,
)


@given(rows=ROWS, missing=st.integers(0, 3), warm_up=st.integers(0, 50))
def test_goodput_is_at_most_throughput_and_every_request_is_counted(rows, missing, warm_up):
    steps = [step(1, 0, 90, rows=1, tokens=1)]
    run = outcome(rows, steps, {"chat": len(rows) + missing}, nanoseconds=90)
    mine = without_warm_up(run, warm_up)
    lane, engine = lane_figures(mine, "chat"), engine_figures(mine)
    ended = [row for row in rows if row.finished >= warm_up]
    assert engine.ended == len(ended) and engine.requests_per_second * engine.seconds == (
        pytest.approx(sum(row.finish in SERVED for row in ended))
    )
    good = goodput(mine, "chat")
    assert good * engine.seconds == pytest.approx(sum(row.good for row in ended))
    assert good <= engine.requests_per_second
    ends = engine.served, engine.refused, engine.failed, engine.unfinished
    assert min(ends) >= 0 and sum(ends) == lane.offered == engine.served + engine.unserved


def test_figures_per_second_count_the_requests_that_ended_after_the_warm_up():
    night = [replace(request(f"n{i}", "night"), budget=Budget()) for i in range(90)]
    night = [replace(row, finished=row.finished + i) for i, row in enumerate(night)]
    early = replace(request("e"), arrived=20, finished=60)  # before the warm-up's end, 50
    late = replace(request("l"), arrived=70, finished=95)
    steps = [step(k + 1, 10 * k, 10, rows=1, tokens=1) for k in range(10)]
    run = outcome([*night, early, late], steps, {"night": 90, "chat": 2}, nanoseconds=100)
    mine = without_warm_up(run, 50)
    assert mine.offered == {"night": 90, "chat": 1}, "the backlog counts, the early one does not"
    engine = engine_figures(mine)
    ended = sum(row.finished >= 50 for row in night) + 2
    assert (engine.served, engine.ended) == (91, ended) and ended < 60
    assert engine.requests_per_second * engine.seconds == pytest.approx(ended)
    assert answered_tokens(mine) == 3 * ended
    assert goodput(mine, "night") * engine.seconds == pytest.approx(ended - 2)
    assert goodput(mine, "chat") * engine.seconds == pytest.approx(2)
    totals = client_totals(mine)
    assert totals.input_tokens_per_second * engine.seconds == pytest.approx(7 * ended)
    assert totals.output_tokens_per_second * engine.seconds == pytest.approx(3 * ended)


def test_tokens_that_all_come_at_once_have_no_tpot():
    rows = [request(f"r{i}", gap=0, generated=9) for i in range(100)]
    figures = lane_figures(outcome(rows), "chat")
    assert figures.gaps == 0 and figures.tpot_p50 is None and figures.good == 100
