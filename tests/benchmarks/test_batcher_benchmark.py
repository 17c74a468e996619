"""benchmarks.batcher and benchmarks.batcher_http compare headway with the others' best rows."""

import asyncio

import pytest

from benchmarks.batcher import __main__ as in_process
from benchmarks.batcher.contender import Full, NotSent, offer
from benchmarks.batcher.settings import HIGH, LEFT_OUT, LOW, Setting, best
from benchmarks.batcher_http import __main__ as over_http
from benchmarks.batcher_http.client import MOST, Client

OURS = Setting("headway")
EARLY, LATE = Setting("batched", 0.1), Setting("batched", 5)


def run(p95=20.0, rate=2_000.0, refused=0.0, not_sent=0.0):
    return {"rate": rate, "refused": refused, "not_sent": not_sent, "p95": p95}


def rounds(by_setting):
    return {(setting, load): by_setting[setting] for setting in by_setting for load in (LOW, HIGH)}


def by_name(figures):
    return {each.name: each for each in figures}


def test_headway_is_compared_with_the_best_window_round_by_round():
    results = rounds({OURS: [run(22), run(24)], EARLY: [run(20), run(24)], LATE: [run(30)] * 2})
    found = by_name(in_process.figures(results, {}))
    assert found["p95_vs_best"].samples == [1.1, 1.0]
    assert found["refused_at_80"].most == LEFT_OUT
    found = by_name(in_process.figures(results, {EARLY: "it ended"}))
    assert found["p95_vs_best"].samples == [22 / 30, 24 / 30]
    assert best(results, [OURS, EARLY], HIGH, "rate") == OURS
    assert best(results, [], LOW, "p95") is None


def test_headway_falls_short_if_it_refuses_items_despite_a_low_p95():
    refusing = rounds({OURS: [run(5), run(5, refused=0.2)], LATE: [run(30)] * 2})
    found = by_name(in_process.figures(refusing, {}))
    assert found["refused_at_80"].falls_short and not found["p95_vs_best"].falls_short


def test_a_missing_headway_or_unequal_numbers_of_rounds_end_the_comparison():
    results = rounds({OURS: [run()], EARLY: [run(), run()]})
    with pytest.raises(SystemExit, match="headway is missing: it ended"):
        in_process.figures(results, {OURS: "it ended"})
    with pytest.raises(ValueError):
        in_process.figures(results, {})


def test_over_http_each_aim_is_judged_against_the_window_of_mosec_best_in_it(capsys):
    chosen = over_http.settings(["headway", "mosec", "litserve"])
    quick, full, own = [each for each in chosen if each.library == "mosec"]
    runs = {OURS: [run()], quick: [run(10, 1_000)], full: [run(40, 4_000)], own: [run(50, 500)]}
    results = rounds(runs)
    found = by_name(over_http.figures(chosen, results, {}))
    assert found["rate_vs_mosec"].samples == [0.5] and found["rate_vs_mosec"].falls_short
    assert found["p95_vs_mosec"].samples == [2.0] and found["p95_vs_mosec"].falls_short
    assert {"refused_at_80", "not_sent_at_80"} <= set(found)
    missing = dict.fromkeys((quick, full, own), "it does not answer")
    capsys.readouterr()
    assert "p95_vs_mosec" not in by_name(over_http.figures(chosen, results, missing))
    assert "p95_vs_mosec is not judged: mosec is missing" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="headway is missing"):
        over_http.figures(chosen, {}, {OURS: "it does not answer"})
    assert over_http.figures(chosen[1:], {}, {}) == []


def test_unsent_items_are_not_refusals_and_a_load_without_answers_ends_the_run(monkeypatch):
    monkeypatch.setattr("benchmarks.batcher.contender.WARM", 0.0)

    async def ask(item):
        if item % 4:
            raise Full if item % 4 == 1 else NotSent
        return item

    found = asyncio.run(offer(ask, 400.0, 0.2, 1))
    assert 0 < found["refused"] < 0.3 < found["not_sent"] < 0.6

    async def full(item):
        raise Full

    with pytest.raises(SystemExit, match="was answered"):
        asyncio.run(offer(full, 400.0, 0.05, 1))


def test_a_client_without_a_free_connection_sends_nothing():
    client = Client(0, "/")
    client._count = MOST
    with pytest.raises(NotSent):
        asyncio.run(client.ask(1))
