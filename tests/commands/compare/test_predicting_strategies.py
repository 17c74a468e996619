"""Strategies that predict times in a comparison: the source of the cost model, and --enforce."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from headway.commands.calibrate.quick import few_designs, learn_quickly
from headway.commands.compare import cost_source
from headway.commands.compare.compare import (
    CompareOptions,
    ComparisonRun,
    prepare,
    run_compare,
    services_of,
)
from headway.commands.compare.cost_source import possible, predicting, with_cost
from headway.commands.replay.recording import load
from headway.commands.replay.rerun import rerun_journal
from headway.core.cost.features import row_features
from headway.core.cost.step_cost import StepCost
from headway.core.request import Finish
from headway.costing.calibration import write_cost_file
from headway.costing.machine import describe_machine
from headway.errors import SettingError
from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.page.page import page
from headway.strategies.from_yaml import read_strategies
from headway.strategies.registry import DEFAULT_STRATEGIES
from tests.commands.small_cost_model import CALIBRATION
from tests.commands.testbeds import COST, fake_testbed

pytest.importorskip("scipy")
BOTH = "budgets,first-come"
HERE = replace(CALIBRATION, model="fake", dtype="none", device="none", about={})
ENDPOINTS = """
chat:
  arrivals: poisson
  prompt: [100, 400]
  answer: [8, 24]
  budget: {ttft: 300, tpot: 60, queue: 150, e2e: 2000}
  weight: 5
bulk:
  arrivals: at-once
  prompt: 200
  answer: 60
  rate: 4
  slots: {least: 1, most: 4}
  priority: 9
"""


def screen():
    return Console(file=StringIO(), width=80, force_terminal=False)


def said(console):
    return " ".join(console.file.getvalue().split())


@pytest.fixture
def endpoints(tmp_path):
    path = tmp_path / "endpoints.yaml"
    path.write_text(ENDPOINTS)
    return path


def comparison_run(folder, console, cost=None, **wishes):
    """A comparison on the fake executor, with a cost model as `run_compare` finds it."""
    options = CompareOptions(
        **{"seconds": 10.0, "strategies": BOTH, "out": folder, "cost": cost} | wishes
    )
    makes = possible(read_strategies(options.strategies), cost, True, console)
    measured = prepare(fake_testbed(), options, services_of(options))
    costed = with_cost(measured, predicting(makes), cost, console)
    return ComparisonRun(costed, makes, options, folder, console)


def test_a_cost_model_is_learned_in_seconds_without_a_cost_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    console = screen()
    made = comparison_run(tmp_path, console)
    assert "budgets predicts times; the cost model was learned in 4 s from" in said(console)
    learned = made.experiment.testbed.cost
    for features in (row_features(0, 200, 1), row_features(300, 1, 1)):
        assert learned.predict(features) == pytest.approx(COST.predict(features), rel=0.03)
    assert made.run() == 0
    found = Analysis(report_json.read(tmp_path / "report.json"))
    source = found.report.about["model"]["cost_model"]
    assert source.startswith("learned in 4 s") and source in page(found)


def test_a_quickly_learned_cost_model_states_its_error_and_residuals():
    quick = learn_quickly(fake_testbed(), 0, 4.0)
    assert quick.steps >= len(few_designs(16, 2_048, 2_048, 16)) > 20
    assert quick.error < 0.03
    low, high = quick.cost.residuals[0].at(0.0), quick.cost.residuals[0].at(1.0)
    assert 900 < low <= 1_000 <= high < 1_100


def test_designed_batches_fit_a_small_memory_and_have_no_more_rows_than_slots():
    for slots in (1, 2, 3, 16):
        made = few_designs(slots, 256, 40 * slots, 16)
        for design in made:
            assert max(design.lengths) <= 256
            assert sum(-(-length // 16) for length in design.lengths) <= 40 * slots
        assert max(len(design.lengths) for design in made) == slots


def test_no_step_of_a_quick_measurement_has_more_rows_than_slots():
    testbed, rows = fake_testbed(), list[int]()
    submit = testbed.executor.submit
    testbed.executor.submit = lambda batch: rows.append(len(batch.rows)) or submit(batch)
    learn_quickly(testbed, 0, 4.0)
    assert max(rows) == testbed.slots


def test_a_named_cost_file_is_used_and_one_of_another_model_is_refused(tmp_path):
    console, path = screen(), tmp_path / "mine.json"
    write_cost_file(HERE, path)
    made = comparison_run(tmp_path / "out", console, path)
    assert made.experiment.testbed.cost == HERE.cost
    assert "budgets predicts times; the cost model was read from mine.json." in said(console)
    alone = comparison_run(tmp_path / "out", console, path, strategies="first-come")
    assert alone.experiment.testbed.cost == HERE.cost
    assert "No strategy predicts times; the cost model read from mine.json is only" in said(console)
    write_cost_file(replace(HERE, model="other"), path)
    with pytest.raises(SettingError, match="this cost file is of other"):
        comparison_run(tmp_path / "out", console, path)
    write_cost_file(replace(HERE, device="cuda"), path)
    with pytest.raises(SettingError, match="this cost file is of a model on cuda"):
        comparison_run(tmp_path / "out", console, path)
    write_cost_file(replace(HERE, executor="vllm"), path)
    with pytest.raises(SettingError, match="of the executor vllm, not of torch"):
        comparison_run(tmp_path / "out", console, path)
    with pytest.raises(SettingError, match=r"none\.json cannot be read"):
        run_compare(
            CompareOptions(strategies=BOTH, cost=tmp_path / "none.json", out=tmp_path), console
        )


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other"},
        {"analytical": True},
        {"executor": "vllm"},
        {"machine": {"processor": "another", "cores": 2}},
        {"about": {"errors": {"all": {"median": 300, "p90": 400}}}},
    ],
)
def test_an_unnamed_cost_json_is_used_only_if_it_matches_and_is_reliable(
    change, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    here, console = replace(HERE, machine=describe_machine()), screen()
    write_cost_file(here, tmp_path / "cost.json")
    made = comparison_run(tmp_path / "out", console)
    assert made.experiment.testbed.cost_source == "read from cost.json"
    write_cost_file(replace(here, **change), tmp_path / "cost.json")
    made = comparison_run(tmp_path / "out", console)
    assert made.experiment.testbed.cost_source.startswith("learned in")


def test_without_a_cost_model_the_strategy_that_needs_one_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cost_source, "find_spec", lambda name: None)
    console = screen()
    with pytest.raises(SettingError, match=r"^budgets predicts times, .* headway calibrate with"):
        run_compare(CompareOptions(strategies=BOTH, out=tmp_path / "out"), console)
    left = possible(read_strategies(",".join(DEFAULT_STRATEGIES)), None, False, console)
    assert set(DEFAULT_STRATEGIES) - set(left) == {"budgets"}
    assert "Without budgets: name a cost file" in said(console)
    with pytest.raises(SettingError, match="the strategy budgets: ByDeadline predicts times"):
        options = CompareOptions(seconds=20.0, strategies=BOTH, out=tmp_path)
        ComparisonRun(
            prepare(fake_testbed(), options, []), read_strategies(BOTH), options, tmp_path, console
        )


def test_a_journal_recorded_under_budgets_replays_the_same_run(tmp_path, endpoints):
    path = tmp_path / "mine.json"
    write_cost_file(replace(HERE, cost=replace(COST, residuals=HERE.cost.residuals)), path)
    wishes = {"lanes": endpoints, "rate": 60.0, "seconds": 5.0, "enforce": True}
    made = comparison_run(tmp_path / "out", screen(), path, journals=tmp_path / "j", **wishes)
    (tmp_path / "j").mkdir()
    (tmp_path / "out").mkdir()
    assert made.run() == 0
    journal, _ = sorted((tmp_path / "j").iterdir())
    recording = load(journal)
    assert recording.settings.cost != StepCost()
    assert recording.settings.lanes[1].slots.most == 4
    again = rerun_journal(recording).outcome
    (outcome,) = made.runs["budgets"]
    assert [step[2:] for step in again.steps] == [step[2:] for step in outcome.steps]
    assert any(row.finish is Finish.REFUSED for row in outcome.requests)
    assert [(row.id, row.finish, row.ttft) for row in again.requests] == [
        (row.id, row.finish, row.ttft) for row in outcome.requests
    ]
    assert again.offered == outcome.offered


def test_enforced_limits_count_against_attainment_and_the_report_says_so(tmp_path, endpoints):
    path = tmp_path / "mine.json"
    write_cost_file(HERE, path)
    wishes = {"lanes": endpoints, "rate": 60.0, "seconds": 5.0}
    figures = dict[bool, dict]()
    for enforce in (False, True):
        console, folder = screen(), tmp_path / str(enforce)
        folder.mkdir()
        made = comparison_run(folder, console, path, enforce=enforce, **wishes)
        assert made.run() == 0
        plain = json.loads((folder / "report.json").read_text())
        assert plain.get("enforced", False) is enforce
        assert ("Enforced: a request that has not started" in said(console)) is enforce
        html = (folder / "report.html").read_text()
        assert ("<dt>Enforced</dt>" in html) is enforce
        figures[enforce] = {each["name"]: each for each in plain["strategies"]}
    for name, each in figures[True].items():
        before, after = figures[False][name], each
        assert after["offered"] == before["offered"]
        finishes = [row[2] for row in after["requests"]["rows"]]
        assert after["requests"]["columns"][2] == "finish"
        assert {"refused", "expired"} & set(finishes)
        chat = after["latency"]["chat"]
        rows = [row for row in made.runs[name][0].requests if row.lane == "chat"]
        warm = made.experiment.work.warm_up
        counted = [row for row in rows if row.arrived >= warm]
        assert chat["offered"] == len(counted)
        assert chat["good"] == sum(row.good for row in counted) < len(counted)
    better = figures[True]["first-come"]["latency"]["chat"]["attainment"]
    assert better > figures[False]["first-come"]["latency"]["chat"]["attainment"]


def test_enforce_is_refused_without_a_limit_to_enforce(tmp_path):
    path = tmp_path / "endpoints.yaml"
    path.write_text("chat: {arrivals: poisson, prompt: 9, answer: 9, budget: {ttft: 300}}")
    with pytest.raises(SettingError, match=r"no endpoint of endpoints\.yaml has a queue limit, an"):
        services_of(CompareOptions(lanes=path, enforce=True))
    with pytest.raises(SettingError, match="--enforce needs --lanes with endpoints that have"):
        services_of(CompareOptions(enforce=True))
    path.write_text("chat: {arrivals: poisson, prompt: 9, answer: 9, budget: {e2e: 4 x unloaded}}")
    assert services_of(CompareOptions(lanes=path, enforce=True))
    trace = tmp_path / "asked.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,80,80\n1,80,80\n")
    with pytest.raises(SettingError, match="--enforce needs --lanes with endpoints that have"):
        services_of(CompareOptions(traces=[trace], enforce=True))
    trace.write_text("arrival_s,input_tokens,output_tokens,supersede\n0,80,80,k\n1,80,80,k\n")
    assert services_of(CompareOptions(traces=[trace], enforce=True))


def test_superseded_requests_are_cancelled_only_under_enforce(tmp_path):
    """Each answer takes longer than the time until its user's next request."""
    cost, trace, ends = tmp_path / "mine.json", tmp_path / "asked.csv", {}
    write_cost_file(HERE, cost)
    rows = "".join(f"{i * 0.1:.1f},160,400,user{i % 2}\n" for i in range(60))
    trace.write_text("arrival_s,input_tokens,output_tokens,supersede\n" + rows)
    for enforce in (False, True):
        folder = tmp_path / str(enforce)
        folder.mkdir()
        made = comparison_run(
            folder, screen(), cost, traces=[trace], seconds=6.0, rate=40.0, enforce=enforce
        )
        assert made.run() == 0
        ends[enforce] = [row.finish for row in made.runs["first-come"][0].requests]
    assert Finish.CANCELLED not in ends[False]
    assert ends[True].count(Finish.CANCELLED) > 40 and Finish.LENGTH in ends[True]


def test_a_strategy_with_too_few_slots_for_the_lanes_is_refused_before_any_run(tmp_path, endpoints):
    endpoints.write_text(ENDPOINTS.replace("least: 1", "least: 3"))
    with pytest.raises(SettingError, match="the strategy one-by-one: the lanes keep 3 slots"):
        comparison_run(
            tmp_path, screen(), lanes=endpoints, rate=20.0, strategies="static,one-by-one"
        )
