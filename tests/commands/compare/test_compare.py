"""headway compare end to end: one workload for all strategies, two reports, broken-off runs."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from math import inf, nan
from pathlib import Path

import pytest
from rich.console import Console

from headway.commands.compare.compare import DRAIN, CompareOptions, run_compare, services_of
from headway.commands.replay.recording import load
from headway.commands.replay.replay import ReplayOptions, run_replay
from headway.commands.replay.rerun import rerun_journal
from headway.core.request import NEVER, Finish
from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.errors import HeadwayError, SettingError
from headway.figures.pressure import pressure_cards
from headway.report import report_json, run_description
from headway.report.analysis import Analysis, Guardrail
from headway.report.formatting import duration, share
from headway.report.page import page_tables
from headway.report.page.page import page
from headway.runs.machine_speed import measure_unloaded
from headway.strategies.registry import DEFAULT_STRATEGIES, DYNAMIC_GLOBAL, DYNAMIC_LANES, REGISTRY
from headway.strategies.strategy_inputs import StrategyInputs
from headway.traffic.from_yaml import endpoints_from_traces, read_endpoints
from headway.traffic.prompts import Prompts
from tests.commands.small_comparison import FEW, compared, comparison_run
from tests.commands.test_demo import Interrupting, nearest_rank
from tests.commands.testbeds import TEXT, fake_testbed

NAMES = FEW.split(",")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    status, said = compared(folder, price_per_hour=3.5)
    assert status == 0
    return folder, said


@pytest.fixture(scope="module")
def found(ran):
    return Analysis(report_json.read(ran[0] / "report.json"))


def test_a_comparison_ends_with_status_0_and_says_where_the_report_is(ran):
    folder, said = ran
    words = " ".join(said.split())
    assert "The report is" in words and "dynamic-global against dynamic-lanes: " in words
    assert all(name in words for name in NAMES)
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 100
    assert json.loads((folder / "report.json").read_text())["all_runs"] is True


def test_every_strategy_gets_the_same_arrivals_and_lengths(found):
    seen = [
        sorted((row.id, row.arrived, row.prompt, row.generated) for row in outcome.requests)
        for outcome in found.report.outcomes.values()
    ]
    assert seen and all(each == seen[0] for each in seen)


def test_the_page_is_made_from_the_json_alone(ran, found):
    assert (ran[0] / "report.html").read_text(encoding="utf-8") == page(found)


def test_a_repetition_gives_the_same_rows_in_virtual_time(tmp_path):
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
        compared(folder, seconds=4.0)
    first, again = (report_json.read(folder / "report.json") for folder in folders)
    assert first.runs == again.runs and len(first.runs) == len(NAMES)


def test_the_latency_table_follows_from_the_raw_rows(ran, found):
    """The expected values come from the file and the definitions, not the package's own sums."""
    plain = json.loads((ran[0] / "report.json").read_text())
    warm_up = plain["workload"]["warm_up_ns"]
    for lane, budget in plain["budgets"].items():
        _, rows = page_tables.latency(found, lane)
        for part, row in zip(plain["strategies"], rows, strict=True):
            columns = part["requests"]["columns"]
            asked = [dict(zip(columns, each, strict=True)) for each in part["requests"]["rows"]]
            offline = set(budget.values()) == {"never"}
            mine = [
                each
                for each in asked
                if each["lane"] == lane
                and (each["arrived"] >= warm_up or (offline and each["arrived"] == 0))
            ]
            ttft = [each["first_token"] - each["arrived"] for each in mine]
            tpot = [
                (each["last_token"] - each["first_token"]) // (each["generated"] - 1)
                for each in mine
                if each["generated"] > 1
            ]
            good = [each for each in asked if each["lane"] == lane and is_good(each, budget)]
            assert row[0] == part["name"] and row[1] == str(len(mine))
            for at, values in ((4, ttft), (8, tpot)):
                for column, percent in enumerate((50, 90, 95, 99)):
                    wanted = nearest_rank(values, percent)
                    assert row[at + column] == page_tables.quantile([wanted])
            assert row[2] == share(len([each for each in good if each in mine]) / len(mine))
            ended = [each for each in good if each["finished"] >= warm_up]
            seconds = (part["nanoseconds"] - warm_up) / 1e9
            assert row[3] == f"{len(ended) / seconds:.2f}"


def is_good(row, budget):
    """Whether the request ended inside both limits; an offline endpoint has no limits."""
    if row["finish"] != "length" or budget["ttft"] == "never":
        return row["finish"] == "length"
    gaps = row["generated"] - 1
    tpot = (row["last_token"] - row["first_token"]) // gaps if gaps else 0
    return row["first_token"] - row["arrived"] <= budget["ttft"] and tpot <= budget["tpot"]


def test_the_throughput_table_follows_from_the_raw_rows(ran, found):
    plain = json.loads((ran[0] / "report.json").read_text())
    warm_up = plain["workload"]["warm_up_ns"]
    (head, rows), (more, others) = page_tables.throughput(found), page_tables.resources(found)
    for part, row, other in zip(plain["strategies"], rows, others, strict=True):
        said = dict(zip(head, row, strict=True)) | dict(zip(more, other, strict=True))
        asked, steps = (
            [dict(zip(part[kind]["columns"], each, strict=True)) for each in part[kind]["rows"]]
            for kind in ("requests", "steps")
        )
        mine = [
            each
            for each in asked
            if each["arrived"] >= warm_up or (each["lane"] == "labelling" and not each["arrived"])
        ]
        served = sum(each["finish"] == "length" for each in mine)
        seconds = (part["nanoseconds"] - warm_up) / 1e9
        ended = [each for each in asked if each["finished"] >= warm_up]
        tokens = sum(each["generated"] for each in ended)
        answers = sum(each["finish"] == "length" for each in ended)
        assert (said["n"], said["served"]) == (str(len(mine)), str(served))
        assert said["not served"] == str(len(mine) - served)
        assert said["s"] == f"{seconds:.1f}"
        assert said["output tok/s"] == f"{tokens / seconds:,.0f}"
        assert said["req/s"] == f"{answers / seconds:.2f}"
        paid = seconds / 3600 * 3.5
        assert said["cost / M tokens"] == page_tables.price([paid / tokens * 1e6])
        later = [each for each in steps if each["began"] >= warm_up]
        held = sum(each["held"] * each["width"] for each in later)
        padded = sum(
            each["rows"] * each["width"] - each["tokens"] for each in later if each["width"]
        )
        computed = sum(each["tokens"] for each in later) + held + padded
        assert said["held"] == share(held / computed)
        assert said["padding"] == share(padded / computed)
        blocks = plain["model"]["num_blocks"]
        assert said["KV peak"] == share(1 - min(each["free_blocks"] for each in later) / blocks)


def test_a_card_shows_what_the_sparse_endpoint_pays_for_one_global_window(found):
    card = found.comparisons[0]
    assert (card.name, card.other) == (DYNAMIC_GLOBAL, DYNAMIC_LANES)
    assert card.payer.lane == "voice" and card.payer.points > 0.2
    lines = dict(page_tables.card(found, card))
    own, other = (found.latency[name]["voice"][0] for name in (DYNAMIC_GLOBAL, DYNAMIC_LANES))
    assert own.ttft_p50 > 2 * other.ttft_p50
    assert lines["Endpoint that pays"].startswith(
        f"voice: {share(own.attainment)} of its requests are inside their budget instead of "
        f"{share(other.attainment)}, {100 * (other.attainment - own.attainment):.0f} points less"
    )
    assert duration(own.ttft_p50) in lines["Endpoint that pays"]
    assert "voice (TTFT" in lines["Created"]


def test_every_other_strategy_has_a_card_against_the_baseline_with_a_guardrail(found):
    assert found.baseline == DYNAMIC_LANES
    assert {each.name for each in found.comparisons} == set(NAMES) - {DYNAMIC_LANES}
    for each in found.comparisons:
        guard, spent = each.guardrail, {}
        for lane, settings in found.report.lanes.items():
            for metric in ("ttft", "tpot"):
                own, other = (
                    _values(found, name, lane, metric) for name in (each.name, each.other)
                )
                limit = getattr(settings.budget, metric)
                percent = 95 if len(own) >= 100 else 50
                if limit != NEVER and (value := nearest_rank(own, percent)) is not None:
                    trigger = max(limit, nearest_rank(other, percent))
                    spent[lane, metric, percent] = value / limit, value, trigger
        worst = max(spent, key=spent.get)
        assert (guard.lane, guard.metric, guard.percent) == worst
        assert (guard.nearness, guard.own, guard.trigger) == spent[worst]
        lines = dict(page_tables.card(found, each))
        assert duration(guard.trigger) in lines["Roll back when"]
        pair = {name: found.first(name) for name in (each.name, each.other)}
        assert each.card == pressure_cards(pair, _endpoints(found))[each.name]


@pytest.mark.parametrize(
    "own, others, watched, trigger",
    [
        (80, 40, "80 ms, 80 % of its 100 ms: the first that will break.", "100 ms, its budget."),
        (300, 200, "300 ms, already 3.0 x its 100 ms.", "200 ms, what static does."),
        (
            NEVER,
            200,
            "most did not come within the run; its budget is 100 ms.",
            "200 ms, what stat",
        ),
        (300, NEVER, "300 ms, already 3.0 x its 100 ms.", "100 ms, its budget."),
        (300, None, "300 ms, already 3.0 x its 100 ms.", "100 ms, its budget."),
    ],
)
def test_the_rollback_limit_is_the_budget_or_a_finite_larger_baseline_value(
    own, others, watched, trigger
):
    own, others = (each * 10**6 if each not in (NEVER, None) else each for each in (own, others))
    guard = Guardrail("voice", "ttft", 95, own, others, 100 * 10**6, 100)
    assert page_tables.watch(guard) == f"voice TTFT p95: {watched}"
    said = page_tables.rollback(guard, "static")
    assert said.startswith(f"voice TTFT p95 of the last 100 requests is over {trigger}")


def _values(found, name, lane, metric):
    rows = [row for row in found.first(name).requests if row.lane == lane]
    return [getattr(row, metric) for row in rows if metric != "tpot" or row.generated > 1]


def _endpoints(found):
    return [
        type("Endpoint", (), {"name": lane.name, "is_offline": lane.budget.ttft == NEVER})
        for lane in found.report.lanes.values()
    ]


def test_repeats_give_a_median_with_its_spread(tmp_path):
    compared(tmp_path, repeat=2, seconds=5.0, strategies="static,one-by-one")
    found = Analysis(report_json.read(tmp_path / "report.json"))
    assert {name: len(runs) for name, runs in found.report.runs.items()} == {
        "static": 2,
        "one-by-one": 2,
    }
    assert page_tables.spread_of([3, 1, 2], str) == "2 (1..3)"
    assert page_tables.spread_of([2, 2], "{:.0f}".format) == "2"
    assert found.first("static").offered == found.counted["static"][1].offered
    assert found.points(found.comparisons[0], "voice")[0] == pytest.approx(
        found.points(found.comparisons[0], "voice")[1]
    )
    payers = [
        dict(page_tables.card(found, each))["Endpoint that pays"] for each in found.comparisons
    ]
    assert all("In 2 repeats: " in payer for payer in payers if not payer.startswith("None"))


def test_a_users_own_endpoints_and_strategies_are_compared(tmp_path):
    (tmp_path / "chat.csv").write_text(
        "arrival_s,input_tokens,output_tokens\n" + "".join(f"{k},400,80\n" for k in range(90))
    )
    lanes = tmp_path / "lanes.yaml"
    lanes.write_text(
        "chat: {trace: chat.csv, budget: {ttft: 300}, weight: 2, window: 40}\n"
        "quick: {arrivals: poisson, prompt: 20, answer: 6, budget: {ttft: 3 x, e2e: 4 x}}\n"
    )
    mine = tmp_path / "mine.yaml"
    mine.write_text("pairs: {join: {static: {size: 2}}}\ndynamic-lanes:\n")
    wishes = {"strategies": str(mine), "rate": 6.0, "seconds": 10.0, "baseline": "pairs"}
    status, said = compared(tmp_path, services=read_endpoints(lanes), **wishes)
    assert status == 0 and "pairs" in said
    found = Analysis(report_json.read(tmp_path / "report.json"))
    assert found.strategies == ["pairs", "dynamic-lanes"] and found.baseline == "pairs"
    rules = {each["name"]: each for each in found.report.about["rules"]}
    assert rules["dynamic-lanes"]["policies"]["join"]["windows"]["chat"] == 40_000_000
    assert "of chat.csv" in dict(run_description.stated(found))["Traffic"]
    assert page_tables.endpoints(found)[1][1][-1].startswith("E2E ")


def test_prefixes_shared_by_a_mooncake_traces_block_ids_hit_the_cache(tmp_path):
    path = tmp_path / "moon.jsonl"
    row = '{{"timestamp": {}, "input_length": 1030, "output_length": 40, "hash_ids": [7, 8, {}]}}'
    path.write_text("\n".join(row.format(400 * k, 100 + k) for k in range(60)))
    wishes = {"strategies": "static,continuous-chunk-64", "rate": 5.0, "seconds": 10.0}
    assert compared(tmp_path, services=endpoints_from_traces([path]), **wishes)[0] == 0
    found = Analysis(report_json.read(tmp_path / "report.json"))
    head, rows = page_tables.resources(found)
    hits = {row[0]: dict(zip(head, row, strict=True))["prefix hits"] for row in rows}
    assert (
        hits["continuous-chunk-64"].endswith(" %") and float(hits["continuous-chunk-64"][:-2]) > 90
    )
    traffic = dict(run_description.stated(found))["Traffic"]
    assert (
        "requests, the first" in traffic
        and "of moon.jsonl" in traffic
        and "token counts divided by 8" in traffic
    )
    assert "raised to 1" not in traffic
    for each in found.report.about["workload"]["lanes"].values():
        each["raised_to_1"] = 3
    traffic = dict(run_description.stated(found))["Traffic"]
    assert traffic.endswith("divided by 8, 3 of which came to 0 and were raised to 1")


LONG = "arrival_s,input_tokens,output_tokens\n" + "".join(
    f"{k / 4},{4096 if k % 3 else 60},{7 if k % 3 else 300}\n" for k in range(80)
)


def test_prompts_longer_than_the_context_are_cut_and_the_cut_is_reported(tmp_path):
    """The unloaded latency is measured with a p95 prompt cut so that the mean answer fits too."""
    (tmp_path / "long.csv").write_text(LONG)
    services = endpoints_from_traces([tmp_path / "long.csv"], 1.0)
    wishes = {"strategies": "one-by-one", "rate": 0.5, "seconds": 20.0, "token_scale": 1.0}
    status, said = compared(tmp_path, services=services, **wishes)
    assert status == 0
    lost = 53 * (4096 + 7 - 2048)
    whole = 53 * (4096 + 7) + 27 * 360
    told = f"53 are cut to the context, which takes away {share(lost / whole)} of all tokens"
    assert f"Of these, {told}." in " ".join(said.split())
    found = Analysis(report_json.read(tmp_path / "report.json"))
    assert f"token counts divided by 1, {told}" in dict(run_description.stated(found))["Traffic"]
    assert told in dict(run_description.stated(found))["Offered load"]


def test_an_unloaded_measurement_that_the_engine_refuses_is_an_error():
    machine = replace(fake_testbed(), context=64)
    with pytest.raises(HeadwayError, match=r"refused a request of 60 \+ 9 tokens.*holds 64"):
        measure_unloaded(machine, RequestSpec(0, "chat", 60, 9), Prompts(TEXT, 16, 0))


def test_the_output_begins_with_the_rate_and_says_if_requests_are_too_few(tmp_path):
    (tmp_path / "few.csv").write_text(LONG.replace("4096", "40"))
    services = endpoints_from_traces([tmp_path / "few.csv"])
    wishes = {"strategies": "one-by-one", "rate": 8.0, "seconds": 12.0}
    _, said = compared(tmp_path, services=services, **wishes)
    words = " ".join(said.split())
    assert words.startswith("8 requests / s: 48 requests in 6 s, load 0.")
    few = "Too few requests for p95, which needs 100 after the warm-up: few 43."
    more = f"{few} --seconds 30 would have about 100."
    assert more in words[: words.index("Endpoints")], "before anything is served"
    plain = json.loads((tmp_path / "report.json").read_text())
    assert plain["workload"]["requests_per_second"] == 8.0
    _, said = compared(tmp_path, services=services, **wishes | {"seconds": 1e4})
    words = " ".join(said.split())
    assert "more --seconds add nothing" in words and "A longer trace would have them." in words
    assert "--seconds" not in words[words.index("Too few") : words.index("Endpoints")]


def test_no_seconds_are_advised_for_the_tpot_of_one_token_answers(tmp_path):
    rows = "".join(f"{at / 20},40,1\n" for at in range(200))
    (tmp_path / "labels.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    services = endpoints_from_traces([tmp_path / "labels.csv"])
    wishes = {"strategies": "one-by-one", "rate": 20.0, "seconds": 8.0}
    _, said = compared(tmp_path, services=services, **wishes)
    opening = " ".join(said.split("Endpoints")[0].split())
    assert "No answer of labels has two tokens, so there is no TPOT." in opening
    assert "--seconds" not in opening and "Too few" not in opening


def test_a_backlog_that_arrives_at_once_is_judged_by_its_budget(tmp_path):
    (tmp_path / "lanes.yaml").write_text(
        "chat: {arrivals: poisson, prompt: 9, answer: 3, budget: {ttft: 60000}}\n"
        "night: {arrivals: at-once, prompt: 90, answer: 9, rate: 2, budget: {e2e: 1}}\n"
    )
    services = read_endpoints(tmp_path / "lanes.yaml")
    run = comparison_run(tmp_path, services=services, rate=4.0, strategies="static")
    night = run.experiment.work.count("night")
    assert run.experiment.counted()["night"] == night > 20
    assert run.run() == 0
    said = " ".join(run.console.file.getvalue().split())
    assert f"It has 0 % of night inside its budget (n {night})" in said


def test_a_comparison_without_requests_after_the_warm_up_is_refused(tmp_path):
    rows = "".join(f"{at},40,4\n" for at in (0, 0.2, 30, 31))
    (tmp_path / "pause.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    services = endpoints_from_traces([tmp_path / "pause.csv"])
    with pytest.raises(SettingError, match="all 2 requests arrive in the warm-up"):
        comparison_run(tmp_path, services=services, rate=1.0, seconds=10.0)


def test_answers_held_until_the_group_ends_have_no_tpot(tmp_path):
    compared(tmp_path, seconds=20.0, strategies="static,static-together", baseline="static")
    found = Analysis(report_json.read(tmp_path / "report.json"))
    for lane in found.lanes:
        _, (static, together) = page_tables.latency(found, lane)
        assert together[8:12] == ["-"] * 4
        assert static[8] != "-" or int(static[1]) < 10
    (card,) = found.comparisons
    assert "time per token" not in dict(page_tables.card(found, card))["Relieved"]


def test_one_global_window_is_called_a_mistake_only_if_it_created_pressure(found, monkeypatch):
    html = page(found)
    assert "a common mistake" in html and "no great difference" not in html
    first, *others = found.comparisons
    harmless = replace(first, card=replace(first.card, created=None))
    monkeypatch.setattr(found, "comparisons", [harmless, *others])
    html = page(found)
    assert "here that makes no great difference" in html and "mistake" not in html


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_strategys_rule_can_be_read_alone(name, found):
    site = StrategyInputs(
        tuple(found.report.lanes.values()), TokenCost(1e5, 3e5), 2_048, [5, 6, 7, 8]
    )
    assert not REGISTRY[name](site).rule.startswith("such")


def test_ctrl_c_between_two_runs_keeps_the_finished_runs(tmp_path, monkeypatch):
    made = comparison_run(tmp_path, seconds=2.0)
    served = made._serve

    def serve(strategy, said):
        if strategy.name == "dynamic-lanes":
            raise KeyboardInterrupt
        served(strategy, said)

    monkeypatch.setattr(made, "_serve", serve)
    assert made.run() == 130
    kept = report_json.read(tmp_path / "report.json")
    assert list(kept.runs) == ["static", "dynamic-global"]
    assert all(outcome.complete for outcome in kept.outcomes.values())
    assert "requests of dynamic-global had ended" in " ".join(made.console.file.getvalue().split())


def test_ctrl_c_in_a_second_repeat_keeps_the_first_and_its_cards(tmp_path, monkeypatch):
    made = comparison_run(tmp_path, seconds=2.0, repeat=2)
    served = made._serve

    def serve(strategy, said):
        if said == "dynamic-lanes 2":
            raise KeyboardInterrupt
        served(strategy, said)

    monkeypatch.setattr(made, "_serve", serve)
    assert made.run() == 130
    found = Analysis(report_json.read(tmp_path / "report.json"))
    assert [len(runs) for runs in found.report.runs.values()] == [2, 2, 1, 1, 1]
    assert len(found.comparisons) == len(NAMES) - 1


def test_ctrl_c_before_the_first_run_leaves_no_report(tmp_path, monkeypatch):
    made = comparison_run(tmp_path, seconds=2.0)

    def serve(strategy, said):
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "_serve", serve)
    assert made.run() == 130 and "no report" in made.console.file.getvalue()
    assert not (tmp_path / "report.json").exists()


def test_ctrl_c_keeps_the_rows_so_far_in_both_reports(tmp_path):
    executor = Interrupting()
    made = comparison_run(tmp_path, fake_testbed(executor=executor), seconds=12.0)
    executor.left = 120
    assert made.run() == 130
    said = " ".join(made.console.file.getvalue().split())
    assert "Broken off:" in said and "The rows so far are in" in said
    assert "*: broken off; its missing requests count as not served." in said
    plain = json.loads((tmp_path / "report.json").read_text())
    assert plain["complete"] is False and plain["all_runs"] is False
    assert any(part["requests"]["rows"] for part in plain["strategies"])
    for part in plain["strategies"]:
        assert (f"{part['name']}* " in said) is not part["complete"]
    html = (tmp_path / "report.html").read_text()
    assert "Broken off: " in html and "not run" in html and "nothing to compare" in html


KILLED = """
import sys
from pathlib import Path
from headway.sim.executor import Filler
from headway.commands.interruption import terminable, Terminated
from tests.commands.small_comparison import comparison_run
from tests.commands.testbeds import TEXT, fake_testbed

class Waiting(Filler):
    left = 10**9
    def submit(self, batch):
        self.left -= 1
        if not self.left:
            print("now", flush=True)
            sys.stdin.readline()
        return super().submit(batch)

executor = Waiting()
with terminable():
    made = comparison_run(Path(sys.argv[1]), fake_testbed(executor=executor), seconds=6.0)
    executor.left = 100
    status = made.run()
print(made.console.file.getvalue())
sys.exit(status)
"""


def test_sigterm_ends_a_comparison_with_status_143_and_keeps_the_rows_so_far(tmp_path):
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as process:
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "The rows so far are in" in " ".join(said.split())
    kept = report_json.read(tmp_path / "report.json")
    (outcome,) = kept.outcomes.values()
    assert not outcome.complete and outcome.steps
    assert {row.finish for row in outcome.requests} <= {Finish.LENGTH}


@pytest.mark.parametrize(
    "wishes, said",
    [
        ({"traces": (Path("a.csv"),), "lanes": Path("b.yaml")}, "not both"),
        ({"rate": 3.0, "load": 0.2}, "--rate or --load"),
        ({"rate": 3.0}, "need --lanes or --trace"),
        ({"strategies": "statc"}, "did you mean static"),
        ({"lanes": Path("none.yaml")}, r"none\.yaml cannot be read"),
        ({"seconds": inf}, "--seconds is inf, not a number"),
        ({"load": nan}, "--load is nan, not a number"),
        ({"price_per_hour": nan}, "--price-per-hour is nan, not a number"),
        ({"traces": (Path("a.csv"),), "token_scale": nan}, "--token-scale is nan, not a number"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_loaded(wishes, said, tmp_path):
    with pytest.raises(SettingError, match=said):
        run_compare(CompareOptions(out=tmp_path, **wishes), None)


def test_two_traces_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("arrival_s,input_tokens,output_tokens\n0,1,1\n")
    with pytest.raises(SettingError, match="two traces are called a"):
        services_of(CompareOptions(traces=(tmp_path / "a.csv", tmp_path / "a.csv")))


@pytest.mark.parametrize("wish", ["rate", "load"])
def test_rate_and_load_are_refused_if_every_endpoint_has_its_own_rate(wish, tmp_path):
    (tmp_path / "a.yaml").write_text(
        "chat: {arrivals: poisson, rate: 2, prompt: 8, answer: 8, budget: {ttft: 500}}\n"
    )
    asked = CompareOptions(lanes=tmp_path / "a.yaml")
    assert [each.rate for each in services_of(asked)] == [2.0]
    with pytest.raises(SettingError, match=f"a rate of its own: --{wish} would change nothing"):
        services_of(replace(asked, **{wish: 0.5}))


def test_a_baseline_outside_the_chosen_strategies_is_refused(tmp_path):
    with pytest.raises(SettingError, match="the baseline priority is not among"):
        run_compare(CompareOptions(out=tmp_path, baseline="priority", strategies="static"), None)


def test_a_default_comparison_takes_less_than_a_quarter_of_an_hour():
    asked = CompareOptions()
    assert len(DEFAULT_STRATEGIES) >= 8
    assert len(DEFAULT_STRATEGIES) * asked.seconds * (1 + DRAIN) < 14.5 * 60, (
        "half a minute is left for measurements"
    )


def test_each_run_leaves_a_journal_that_replays_it(tmp_path):
    """A run with a journal computes every step one by one, in virtual time too."""
    (folder := tmp_path / "journals").mkdir()
    names = "static,continuous-chunk-64"
    wishes = {"seconds": 4.0, "strategies": names, "repeat": 2}
    compared(tmp_path, fake_testbed(real_memory=True), **wishes, journals=folder)
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == [
        "01-static-1.jsonl",
        "02-continuous-chunk-64-1.jsonl",
        "03-static-2.jsonl",
        "04-continuous-chunk-64-2.jsonl",
    ]
    runs = report_json.read(tmp_path / "report.json").runs
    for name, row in (("static", kept[0]), ("static", kept[2]), ("continuous-chunk-64", kept[3])):
        recording = load(folder / row)
        outcome = rerun_journal(recording).outcome
        measured = runs[name][int(row[-7]) - 1]
        assert recording.about["model"] == "fake" and outcome.complete
        assert [each.ttft for each in outcome.requests] == [each.ttft for each in measured.requests]
        assert [each[2:] for each in outcome.steps] == [each[2:] for each in measured.steps]


def test_a_replay_leaves_out_the_comparisons_warm_up(tmp_path):
    (folder := tmp_path / "journals").mkdir()
    compared(
        tmp_path, fake_testbed(), seconds=20.0, strategies="continuous-chunk-64", journals=folder
    )
    kept = json.loads((tmp_path / "report.json").read_text())["strategies"][0]
    assert kept["engine"]["served"] < len(kept["requests"]["rows"]), "some are left out"
    path = next(folder.iterdir())
    screen = Console(file=StringIO(), width=80)
    assert run_replay(ReplayOptions(path, as_json=True), screen) == 0
    said = json.loads(screen.file.getvalue())
    again = said["runs"]["as recorded"]
    for lane, mine in kept["latency"].items():
        assert again["latency"][lane]["offered"] == mine["offered"], lane
        assert again["latency"][lane]["attainment"] == mine["attainment"], lane
        assert again["latency"][lane]["ttft_p50"] == mine["ttft_p50"], lane
    assert again["engine"]["served"] == kept["engine"]["served"]
    assert again["engine"]["seconds"] == pytest.approx(kept["engine"]["seconds"], rel=1e-6)
    assert said["warm_up_ns"] == 2_000_000_000
    screen = Console(file=StringIO(), width=80)
    assert run_replay(ReplayOptions(path, out=tmp_path / "again"), screen) == 0
    words = " ".join(screen.file.getvalue().split())
    assert "As in the comparison that recorded them, the warm-up is left out" in words
    assert "the first 2 s" in words
    rewritten = json.loads((tmp_path / "again" / "report.json").read_text())["strategies"][0]
    assert rewritten["latency"] == kept["latency"]


def test_a_journal_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "01-static.jsonl").write_text("evidence")
    with pytest.raises(SettingError, match="is not empty: name a new folder for the journals"):
        run_compare(
            CompareOptions(journals=tmp_path, out=tmp_path / "out"), Console(file=StringIO())
        )
