"""The tables of a report on the narrowest terminal: headers and figures are not cut."""

from dataclasses import fields, replace
from io import StringIO

from rich.console import Console

from headway.commands.simulate.sweep_tables import capacities
from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.figures.engine_figures import EngineFigures
from headway.figures.lane_figures import LaneFigures
from headway.figures.promise_figures import PromiseFigures
from headway.figures.tenant_figures import TenantFigures
from headway.report.formatting import threads
from headway.report.page.page_tables import quantile
from headway.report.terminal_tables import (
    endpoints_table,
    engine_table,
    latency_notes,
    latency_table,
    narrow_table,
    promises_table,
    tenants_table,
)
from headway.strategies.registry import REGISTRY
from headway.traffic.endpoint import Endpoint, UnloadedLatency

MEDIANS = ("queue_p50", "ttft_p50", "tpot_p50")
TAILS = ("queue_p95", "ttft_p95", "tpot_p95")
LONGEST = "99,999"  # milliseconds, or tokens a second


def printed(table):
    console = Console(file=StringIO(), width=80)
    console.print(table)
    return [line.split() for line in console.file.getvalue().splitlines()]


def figures(kind, **said):
    """Figures of one kind, 0 unless given."""
    return kind(**dict.fromkeys([field.name for field in fields(kind)], 0) | said)


def test_every_limit_of_an_endpoint_is_in_the_table_of_budgets():
    chat = Endpoint("chat", "", "", 0, ttft=6.0, e2e=20.0)
    voice = Endpoint("voice", "", "", 1, fixed=Budget(ttft=80_000_000, queue=40_000_000))
    alone = UnloadedLatency(50_000_000, 4_000_000, 300_000_000)
    said = table_of_budgets([chat, voice], alone)
    columns = "endpoint n TTFT within TPOT within E2E within queue within"
    assert columns.split() in said
    times = [*("6", "x", "50", "=", "300"), "-", *("20", "x", "300", "=", "6,000"), "-"]
    assert ["chat", "7", *times] in said
    assert ["voice", "7", "80", "-", "-", "40"] in said
    plain = table_of_budgets([replace(chat, e2e=0.0)], alone)
    assert ["endpoint", "n", "TTFT", "within", "TPOT", "within"] in plain


def table_of_budgets(endpoints, alone):
    unloaded = {each.name: alone for each in endpoints}
    lanes = {each.name: each.lane(unloaded) for each in endpoints}
    return printed(endpoints_table(endpoints, lanes, unloaded, dict.fromkeys(lanes, 7)))


def test_the_latency_table_fits_80_columns():
    times = dict.fromkeys(("queue_p50", "queue_p95", "ttft_p50", "ttft_p95"), 99_999_000_000)
    times |= dict.fromkeys(("tpot_p50", "tpot_p95"), 99_999_000_000)
    lane = figures(LaneFigures, offered=1_000, good=1_000, **times)
    said = printed(
        latency_table({name: {"support-drafts": lane, "voice": lane} for name in REGISTRY})
    )
    assert ["queue", "queue", "TTFT", "TTFT", "TPOT", "TPOT", "in"] in said
    assert ["strategy", "n", *["p50", "p95"] * 3, "budget"] in said
    for name in REGISTRY:
        assert said.count([name, "1000", *[LONGEST] * 6, "100", "%"]) == 2
    assert ["support-drafts:"] in said and ["voice:"] in said


def test_the_median_of_repeats_is_one_of_their_times_or_never():
    assert quantile([5_000_000_000, NEVER]) == "5,000 (5,000..never)"
    assert quantile([5_000_000_000, NEVER, NEVER, NEVER]) == "never (5,000..never)"


def test_a_share_just_below_what_is_required_is_not_rounded_up_to_it():
    lane = figures(LaneFigures, offered=10_000, good=9_496, queue_p50=1)
    said = printed(latency_table({"static": {"voice": lane}}))
    assert said[-1][-2:] == ["94.9", "%"]
    lanes = {"voice": {"offered": 10_000, "attainment": 0.9496}}
    points = [{"strategy": "static", "engine": {"busy": 0.5}, "lanes": lanes}]
    sweep = {"strategies": ["static"], "lanes": ["voice"], "capacity": {}, "share": 0.95}
    sweep["points"] = [{"value": 2.0, "figures": points}]
    _, (row,) = capacities(sweep)
    assert row[-1] == "94.9 %"


def test_the_tenants_table_fits_80_columns_and_names_each_endpoint_once():
    tenant = figures(
        TenantFigures, requests=1_000, good=1_000, tokens=9_999_999, queue_p50=99_999_000_000
    )
    lanes = {"support-drafts": {"acme": tenant, "bell": replace(tenant, good=0)}}
    said = printed(tenants_table({"first-come": lanes, "deadline-order": {"support-drafts": {}}}))
    counts = ["1000", "9,999,999", LONGEST, "0.0"]
    assert said.count(["support-drafts:"]) == 1
    assert ["first-come", "acme", *counts, "100", "%"] in said
    assert ["first-come", "bell", *counts, "0", "%"] in said
    assert not [line for line in said if line[:1] == ["deadline-order"]], "it served none of them"


def test_a_percentile_without_samples_has_no_column_and_a_lane_without_times_no_line():
    few = figures(LaneFigures, offered=12, good=12, ttft_p50=5_000_000)
    few = replace(few, **dict.fromkeys(TAILS, None))
    none = replace(few, offered=3, **dict.fromkeys(MEDIANS, None))
    latency = {"static": {"voice": few, "bulk": none}}
    said = printed(latency_table(latency))
    words = [word for line in said for word in line]
    assert (words.count("p50"), words.count("p95")) == (3, 0)
    assert ["voice:"] in said and ["bulk:"] not in said
    (note,) = latency_notes(latency)
    assert "p50 needs 10 requests, p95 100" in note
    assert "too few requests for any percentile: bulk (n 3)." in note
    much = {"static": {"voice": replace(few, ttft_p95=9_000_000), "bulk": few}}
    words = [word for line in printed(latency_table(much)) for word in line]
    assert (words.count("p50"), words.count("p95")) == (3, 3)


def test_without_any_percentile_there_is_no_latency_table_and_a_line_says_why():
    none = figures(LaneFigures, offered=2, good=2, **dict.fromkeys((*MEDIANS, *TAILS), None))
    latency = {"as recorded": {"default": none}}
    assert latency_table(latency).row_count == 0
    assert latency_notes(latency) == [
        "No latency: p50 needs 10 requests of an endpoint: default (n 2)."
    ]


def test_the_throughput_table_fits_80_columns():
    shares = {"busy": 1.0, "held": 0.99, "padding": 0.99}
    engine = figures(
        EngineFigures,
        seconds=999.9,
        served=9_999,
        unserved=9_999,
        requests_per_second=999.9,
        tokens_per_second=99_999,
        slots=16.0,
        **shares,
    )
    said = printed(engine_table(dict.fromkeys(REGISTRY, engine)))
    assert ["not", "slots"] in said
    heads = ["served", "served", "req/s", "tok/s", "used", "busy", "held", "pad"]
    assert ["strategy", "s", *heads] in said
    row = ["999.9", "9999", "9999", "999.9", LONGEST, "16.0", "100", "%", "99", "%", "99", "%"]
    for name in REGISTRY:
        assert [name, *row] in said


def test_the_promises_table_fits_80_columns():
    mine = PromiseFigures(10_000, 99_999_000_000, 990, 10_000, 9_000)
    none = PromiseFigures(3, None, None, 0, 0)
    said = printed(promises_table(dict.fromkeys(REGISTRY, mine) | {"few": none}))
    assert ["strategy", "first", "tokens", "error", "p50", "of", "TTFT", "ends", "kept"] in said
    for name in REGISTRY:
        assert [name, "10000", LONGEST, "99", "%", "10000", "90", "%"] in said
    assert ["few", "3", "-", "-", "0", "-"] in said


def test_a_sentence_wraps_and_keeps_all_of_its_words():
    wrong = "status 429: the lane holds 64 requests already, and its queue is full: try in 3 s"
    table = narrow_table("What went wrong", ["server", "error"], ["requests"], ["error"])
    table.add_row("a server with a long name", wrong, "1,234")
    console = Console(file=StringIO(), width=60)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    assert len(lines[3].split()) > 3 and lines[3].endswith("1,234")
    said = " ".join(line[26:51].strip() for line in lines[3:])
    assert " ".join(said.split()) == wrong


def test_one_thread_is_one_thread():
    assert (threads(1), threads(2)) == ("1 thread", "2 threads")
