"""headway tune --pipeline: what it tries, what it writes, and what it refuses."""

import json
import sys
from dataclasses import replace
from io import StringIO

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from headway.cli.app import app
from headway.commands.tune.pipeline import search
from headway.commands.tune.pipeline.options import PipelineOptions
from headway.commands.tune.pipeline.sizing import (
    StageSizing,
    neighbours,
    sized,
    sizing_of,
    starts,
)
from headway.commands.tune.pipeline.trial import (
    WINDOWS,
    Course,
    attained,
    drawn_windows,
    held_out,
    trace_windows,
)
from headway.commands.tune.pipeline.tune_pipeline import fastest, plan_named, run_tune_pipeline
from headway.core.cost.step_cost import StepCost
from headway.costing.calibration import write_cost_file
from headway.errors import SettingError, WorkerLostError
from headway.pipelines.simulated.plan import Plan, plan_of, read_plan
from headway.runs.process_pool import LOST
from headway.traffic.trace import Arrival
from tests.commands.small_cost_model import CALIBRATION

PLAN = {
    "deadline": 0.5,
    "stages": [
        {"name": "find", "base": 0.02, "per_item": 0.004, "size": 2, "largest": 16, "width": 3},
        {"each": [{"name": "rank", "base": 0.02, "per_item": 0.002, "size": 2, "largest": 64}]},
        {"name": "answer", "base": 0.05, "per_item": 0.01, "size": 8, "processes": 2},
    ],
}


def made(**changes) -> Plan:
    return plan_of({**PLAN, **changes}, "plan")


def tuned(folder, monkeypatch, **wishes):
    """Tune a pipeline; return the exit status, the output, and the options."""
    monkeypatch.setattr(search, "ROUNDS", 1)
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump(PLAN))
    wishes = {"requests": 20, "workers": 1, "json": folder / "out.json", **wishes}
    options = PipelineOptions(str(file), out=folder / "out.yaml", **wishes)
    screen = Console(file=StringIO(), width=80)
    status = run_tune_pipeline(options, screen)
    return status, screen.file.getvalue(), options


def test_the_plan_file_is_not_replaced_by_the_json(tmp_path, monkeypatch):
    with pytest.raises(SettingError, match=r"--json .* would replace the input"):
        tuned(tmp_path, monkeypatch, json=tmp_path / "stages.yaml")
    assert read_plan(tmp_path / "stages.yaml").plain["stages"]


def test_tuning_finds_larger_calls_and_writes_them_with_the_evidence(tmp_path, monkeypatch):
    status, said, options = tuned(tmp_path, monkeypatch)
    assert status == 0 and max(map(len, said.splitlines())) <= 80
    assert "times the rate of the stages as given" in said and "2 -> " in said
    assert "a window lasts" in " ".join(said.split()), "20 workflows are few"
    text = options.out.read_text()
    assert text.startswith("# Made by headway tune --pipeline, seed 0: Held-out windows: ")
    found = json.loads(options.json.read_text())
    plan = read_plan(options.out)
    assert plan.plain == found["recommended"]
    assert found["held_out"]["recommended"]["capacity"] > found["held_out"]["as given"]["capacity"]
    assert found["held_out"]["recommended"]["n"] == 2 * 18, "without the warm-up"
    assert sum(stage.processes for stage in plan.stages) == 4
    assert all(stage.size <= stage.most for stage in plan.stages)


def test_more_processes_go_to_the_stage_that_needs_them():
    as_given, *_ = starts(made(), 7)
    assert sum(each.processes for each in as_given) == 7
    assert as_given[2].processes > as_given[0].processes
    assert starts(made(), 4)[0] == sizing_of(made())


@given(st.integers(0, 10**6))
def test_a_neighbour_differs_in_one_setting_and_has_as_many_processes(steps):
    plan = made()
    sizing = sizing_of(plan)
    for _ in range(4):
        beside = list(neighbours(plan, sizing))
        for each in beside:
            changes = [
                (a.size != b.size) + (a.window != b.window)
                for a, b in zip(sizing, each, strict=True)
            ]
            moved = [a.processes != b.processes for a, b in zip(sizing, each, strict=True)]
            assert (sum(changes), sum(moved)) in ((1, 0), (0, 2))
            assert sum(a.processes for a in each) == 4 and min(a.processes for a in each) == 1
            assert all(a.size <= b.most for a, b in zip(each, plan.stages, strict=True))
            assert all(0 <= a.window <= 0.125 for a in each)
        sizing = beside[steps % len(beside)]


def test_a_sized_plan_has_the_given_sizing():
    sizing = tuple(StageSizing(4, 0.01, 1 + at) for at in range(3))
    assert sizing_of(sized(made(), sizing)) == sizing
    assert made().items == (1.0, 3.0, 1.0)


def test_windows_are_drawn_by_the_seed_and_are_all_different():
    windows = drawn_windows(50, 1)
    assert len(windows) == WINDOWS == len(set(windows)) and windows == drawn_windows(50, 1)
    assert windows != drawn_windows(50, 2)
    assert sum(window[-1] for window in windows) / 200 == pytest.approx(1.0, rel=0.3)


def test_a_trace_is_cut_into_windows_of_one_workflow_a_second():
    trace = [Arrival(at * at * 1_000, 1, 1) for at in range(100)]
    windows = trace_windows(trace, 1_000)
    assert [len(window) for window in windows] == [25] * WINDOWS
    assert [window[-1] for window in windows] == pytest.approx([24.0] * WINDOWS)
    with pytest.raises(SettingError, match="has 9 arrivals; tuning needs 80"):
        trace_windows(trace[:9], 1_000)
    with pytest.raises(SettingError, match="at one moment"):
        trace_windows([replace(each, at=0) for each in trace], 1_000)


def test_the_same_seed_gives_the_same_capacity():
    course = Course(made(), tuple(drawn_windows(20, 3)), 3, 40.0)
    found = [held_out((course, sizing_of(made()), 10.0)) for _ in range(2)]
    assert found[0] == found[1] and 0 < found[0].rate <= 40


def test_workflows_that_start_at_one_moment_are_counted_one_by_one():
    stage = {"name": "a", "base": 0.1, "per_item": 0, "size": 1}
    plan = plan_of({"deadline": 0.15, "stages": [stage]}, "plan")
    course = Course(plan, (tuple([at // 10 * 10.0 for at in range(200)]),), 0, 100.0)
    assert attained(course.counted(sizing_of(plan), 1.0, 0)) == 0.1, "one of ten is in time"


def test_attainment_is_the_good_share_over_all_blocks():
    assert attained([(4, 3), (4, 4)]) == 7 / 8 and attained([]) == 0.0


def test_a_given_trace_is_the_offered_traffic(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "neighbours", lambda plan, sizing: [])
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{at / 10},1,1\n" for at in range(100))
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    status, said, _ = tuned(tmp_path, monkeypatch, trace=trace)
    assert status == 0 and "arrivals of trace.csv" in said


def test_a_deadline_that_no_rate_keeps_is_one_line_and_no_file(tmp_path):
    file, screen = tmp_path / "stages.yaml", Console(file=StringIO(), width=80)
    stage = {"name": "a", "base": 0.1, "per_item": 0, "size": 4}
    file.write_text(yaml.safe_dump({"deadline": 0.05, "stages": [stage]}))
    options = PipelineOptions(str(file), out=tmp_path / "out.yaml", requests=20, workers=1)
    assert run_tune_pipeline(options, screen) == 1 and not options.out.exists()
    said = screen.file.getvalue()
    assert said.endswith("\nNo rate keeps 95 % of the workflows within 50 ms: no file.\n")


def test_an_interrupted_pipeline_search_keeps_the_best_so_far(tmp_path, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(search.Search, "climb", interrupted)
    status, said, options = tuned(tmp_path, monkeypatch, requests=10)
    assert status == 130 and "was not checked" in said
    assert "not checked" in options.out.read_text()
    options.out.unlink()
    monkeypatch.setattr(search.Search, "begin", interrupted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search.Search, "begin", lambda *_: interrupted(None))
        status, said, options = tuned(tmp_path, monkeypatch, requests=10)
    assert status == 130 and "no file" in said and not options.out.exists()


def test_a_killed_worker_leaves_the_best_so_far(tmp_path, monkeypatch):
    def lost(self):
        raise WorkerLostError(LOST)

    monkeypatch.setattr(search.Search, "climb", lost)
    with pytest.raises(WorkerLostError, match="take fewer --workers"):
        tuned(tmp_path, monkeypatch, requests=10)
    assert "not checked" in (tmp_path / "out.yaml").read_text()


def test_a_plan_or_a_pipeline_is_imported_from_a_module(tmp_path, monkeypatch):
    (tmp_path / "my_stages.py").write_text(
        "from headway import Pipeline, stage\n"
        "def f(items): return items\n"
        "live = Pipeline(stage(f) >> stage(f, name='g'), deadline=1)\n"
        "live.call(1)\n"
        "plan, number = live.learned(), 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert [work.name for work in plan_named("my_stages:plan").stages] == ["f", "g"]
    assert plan_named("my_stages:live").deadline == 1
    with pytest.raises(SettingError, match="is a int, not a Plan or a Pipeline"):
        plan_named("my_stages:number")
    with pytest.raises(SettingError, match="cannot be imported: "):
        plan_named("my_stages:nothing")
    sys.modules.pop("my_stages").live.close()


@pytest.mark.parametrize(
    "plan, wishes, said",
    [
        ({**PLAN, "deadline": 0}, {}, "has no deadline"),
        (PLAN, {"processes": 2}, "2 processes are too few for 3 stages"),
    ],
)
def test_a_plan_that_cannot_be_tuned_is_refused_with_the_reason(tmp_path, plan, wishes, said):
    file = tmp_path / "stages.yaml"
    file.write_text(yaml.safe_dump(plan))
    options = PipelineOptions(str(file), out=tmp_path / "out.yaml", **wishes)
    with pytest.raises(SettingError, match=said):
        run_tune_pipeline(options, Console(file=StringIO()))


@pytest.mark.parametrize(
    "words, said",
    [
        (["--pipeline", "s.yaml", "--rate", "3"], "--rate does not go with --pipeline"),
        (["--pipeline", "s.yaml", "--no-live"], "--live does not go with --pipeline"),
        (["--pipeline", "s.yaml", "--trace", "a", "--trace", "b"], "has one trace"),
        (["--processes", "3"], "--processes goes with --pipeline"),
        (["--pipeline", "no.yaml"], "no.yaml cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["tune", *words])
    assert isinstance(done.exception, SettingError) and said in str(done.exception)


def with_llm(folder):
    """The plan with an LLM as its last stage: steps of 4 ms and 0.1 ms a token, 10 a request."""
    cost = StepCost.of(4_000_000, per_token=100_000)
    write_cost_file(replace(CALIBRATION, cost=cost), folder / "cost.json")
    llm = {"name": "answer", "cost": "cost.json", "prompt": 10, "answer": 10, "slots": 2}
    given = {**PLAN, "stages": [*PLAN["stages"][:2], {**llm, "largest": 16}]}
    return plan_of(given, "plan", folder)


def test_an_llm_stage_is_sized_by_slots_not_by_windows_or_processes(tmp_path):
    plan = with_llm(tmp_path)
    sizing = sizing_of(plan)
    assert sizing[2] == StageSizing(2, 0.0, 1)
    two = [replace(each, processes=2) for each in sizing[:2]]
    beside = list(neighbours(plan, (*two, sizing[2])))
    assert {each[2].size for each in beside} == {1, 2, 4}
    assert all((each[2].window, each[2].processes) == (0.0, 1) for each in beside)
    assert [each.processes for each in starts(plan, 7)[0]][2] == 1
    assert {each[2].size for each in starts(plan, 3)} == {2, 8, 16}
    assert sizing_of(sized(plan, sizing)) == sizing and sized(plan, sizing).stages[2].most == 16


def test_the_highest_offered_rate_is_bound_by_the_llm_or_the_functions(tmp_path):
    plan, functions = with_llm(tmp_path), made(stages=PLAN["stages"][:2])
    whole = 1 / (10 * (0.004 + 16 * 0.0001) / 16 + 0.001)
    assert fastest(plan, 100) == pytest.approx(whole), "the LLM's own rate, with all slots"
    assert fastest(plan, 3) == pytest.approx(fastest(functions, 2)), "that of the functions"


def test_more_slots_keep_more_workflows_in_time(tmp_path):
    plan = with_llm(tmp_path)
    course = Course(plan, (drawn_windows(40, 3)[0],), 3, 100.0)
    kept = []
    for slots in (1, 8):
        wide = [replace(each, size=16) for each in sizing_of(plan)[:2]]
        sizing = (*wide, StageSizing(slots, 0.0, 1))
        kept.append(attained(course.tallies(sizing, 40.0, (0,))))
    assert kept[0] < 0.8 < kept[1]


def test_processes_are_refused_for_a_pipeline_of_one_llm(tmp_path):
    file, llm = tmp_path / "llm.yaml", with_llm(tmp_path).plain["stages"][2]
    file.write_text(yaml.safe_dump({"deadline": 1, "stages": [llm]}))
    with pytest.raises(SettingError, match="an LLM is one engine"):
        run_tune_pipeline(PipelineOptions(str(file), processes=2), Console(file=StringIO()))
