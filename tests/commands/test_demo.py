"""headway demo on the fake executor in virtual time, and its report."""

import inspect
import json
from io import StringIO
from math import inf

import pytest
from rich.console import Console

from headway.cli.demo import demo as demo_command
from headway.commands import demo
from headway.core.request import Finish
from headway.errors import SettingError
from headway.figures.engine_figures import engine_figures
from headway.figures.lane_figures import lane_figures
from headway.figures.pressure import pressure_cards
from headway.figures.warm_up import without_warm_up
from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.formatting import milliseconds, pressed, share
from headway.report.page.page import page
from headway.report.reporter import DRAIN
from headway.report.verdict import verdict
from headway.sim.executor import Filler
from headway.traffic.endpoint import ENDPOINTS
from tests.commands.testbeds import fake_testbed


def console(width=80):
    return Console(file=StringIO(), width=width, force_terminal=False)


def run(path, seconds=12.0, machine=None, width=80):
    screen = console(width)
    comparison = demo.demo_comparison(
        machine or fake_testbed(), demo.demo_options(path.parent, seconds, 0), screen
    )
    status = comparison.run()
    return status, comparison, screen.file.getvalue()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "report.json"
    return path, *run(path)


def test_the_demo_ends_with_status_0_and_fits_80_columns(ran):
    _, status, show, said = ran
    assert status == 0
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80
    assert "\x1b" not in said and "…" not in said
    plain = " ".join(said.split())
    for words in ("seed 0", "load 0.3", "held", "padding", "against static: relieved"):
        assert words in plain
    for name in (
        "static",
        "dynamic",
        "continuous",
        "budgets",
        "voice",
        "completion",
        "support",
        "labelling",
    ):
        assert name in said
    assert [s.name for s in show.strategies] == ["static", "dynamic", "continuous", "budgets"]


def test_the_verdict_comes_first_then_tables_and_few_notes(ran):
    path, _, _, said = ran
    found = Analysis(report_json.read(path))
    after = said[said.index("continuous: ") :].split("\n\n", 1)[1]
    assert " ".join(after.split()).startswith(verdict(found))
    order = [after.index(part) for part in ("Latency in", "Throughput, and", "against", "n: req")]
    assert order == sorted(order)
    notes = after[order[-1] : after.index("The report is")]
    assert len(notes.splitlines()) <= 6
    assert found.tail == 90 and "TTFT p90" in after and "p95" not in after


def test_the_runs_of_the_demo_leave_20_of_75_seconds_for_measurements():
    seconds = inspect.signature(demo_command).parameters["seconds"].default
    assert len(demo.NAMES) * seconds * (1 + DRAIN) <= 55, "20 s of 75 are left for measurements"


def test_the_page_opens_with_the_verdict_and_is_made_from_the_json(ran):
    path, *_ = ran
    found = Analysis(report_json.read(path))
    assert path.with_suffix(".html").read_text(encoding="utf-8") == page(found)
    assert found.baseline == "static"


def test_every_strategy_is_offered_the_same_requests_and_each_has_a_row(ran):
    path, _, show, _ = ran
    outcomes = report_json.read(path).outcomes
    asked = [(request.id, request.arrived) for request in show.experiment.work.requests]
    for outcome in outcomes.values():
        assert sorted((row.id, row.arrived) for row in outcome.requests) == sorted(asked)
        assert sum(outcome.offered.values()) == len(asked)
        served = [row for row in outcome.requests if row.finish is Finish.LENGTH]
        wanted = {request.id: request.max_tokens for request in show.experiment.work.requests}
        assert all(row.generated == wanted[row.id] for row in served)


def test_the_figures_follow_from_the_rows(ran):
    path, _, _, said = ran
    plain, read = json.loads(path.read_text()), report_json.read(path)
    figured = {name: without_warm_up(each, read.warm_up) for name, each in read.outcomes.items()}
    assert plain["complete"] is True
    tables = [line.split() for line in said.splitlines()]
    for part, (name, outcome) in zip(plain["strategies"], figured.items(), strict=True):
        assert part["name"] == name
        for lane, figures in part["latency"].items():
            again = lane_figures(outcome, lane)
            rows = [r for r in outcome.requests if r.lane == lane]
            assert figures["good"] == again.good == sum(row.good for row in rows)
            assert figures["attainment"] == again.attainment == again.good / len(rows)
            assert figures["ttft_p50"] == again.ttft_p50 == nearest_rank([r.ttft for r in rows], 50)
            printed = [name, str(len(rows)), milliseconds(again.queue_p50)]
            assert any(any(printed == line[i : i + 3] for i in (0, 1)) for line in tables)
            assert any(line[-2:] == share(again.attainment).split() for line in tables)
        engine = engine_figures(outcome)
        assert part["engine"]["padding"] == engine.padding
        assert part["engine"]["held"] == engine.held
        assert any(line[:2] == [name, f"{engine.seconds:.1f}"] for line in tables)
    assert plain["baseline"] == "static" and plain["strategies"][0]["pressure"] is None
    for part in plain["strategies"][1:]:
        pair = {name: figured[name] for name in (part["name"], "static")}
        assert part["pressure"] == pressed(pressure_cards(pair, ENDPOINTS)[part["name"]])


def nearest_rank(values, percent):
    """The percentile by its definition, not by the package."""
    enough = len(values) * (1 - percent / 100) >= 5
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)] if enough else None


def test_the_books_of_time_balance_in_the_report(ran):
    path = ran[0]
    for outcome in report_json.read(path).outcomes.values():
        spent = sum(row.nanoseconds for row in outcome.steps)
        wasted = sum(row.waste_nanoseconds for row in outcome.steps)
        assert sum(row.nanoseconds for row in outcome.requests) + wasted == spent


def test_groups_waste_tokens_and_continuous_batching_does_not(ran):
    figures = {
        name: engine_figures(each) for name, each in report_json.read(ran[0]).outcomes.items()
    }
    assert figures["continuous"].waste == figures["budgets"].waste == 0
    assert figures["static"].padding > 0 and figures["static"].held > 0
    assert figures["dynamic"].waste > 0


def test_the_report_describes_the_run_without_the_host_name(ran):
    plain = json.loads(ran[0].read_text())
    assert plain["workload"]["token_scale"] == 8 and plain["seed"] == 0
    assert plain["model"]["name"] == "fake" and plain["machine"]["processor"]
    assert plain["workload"]["offered_load"] == pytest.approx(0.3, rel=0.1)
    assert {each["name"] for each in plain["endpoints"]} == set(plain["budgets"])
    for strategy in plain["strategies"]:
        assert strategy["policies"]["join"]["size"] == 16


def test_an_executor_that_reads_a_paged_memory_gives_the_same_rows(tmp_path):
    machines = fake_testbed(), fake_testbed(real_memory=True)
    paths = [tmp_path / name / "report.json" for name in ("filler", "memory")]
    for machine, path in zip(machines, paths, strict=True):
        path.parent.mkdir()
        assert run(path, 1.0, machine)[0] == 0
    first, second = (report_json.read(path).outcomes for path in paths)
    assert first == second


class Interrupting(Filler):
    """An executor that is interrupted by Ctrl-C during a step."""

    left = 10**9

    def submit(self, batch):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return super().submit(batch)


def test_ctrl_c_keeps_the_rows_so_far_and_says_so(tmp_path):
    executor, path, screen = Interrupting(), tmp_path / "report.json", console()
    comparison = demo.demo_comparison(
        fake_testbed(executor=executor), demo.demo_options(tmp_path, 12.0, 0), screen
    )
    executor.left = 40
    assert comparison.run() == 130
    said = " ".join(screen.file.getvalue().split())
    assert "Broken off:" in said and "The rows so far are in" in said
    plain, (outcome,) = json.loads(path.read_text()), report_json.read(path).outcomes.values()
    assert plain["complete"] is False and not outcome.complete
    assert sum(each.tokens > 0 for each in outcome.steps) == 39
    assert len(outcome.requests) < sum(outcome.offered.values())


def test_an_unwritable_folder_is_reported_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="the report cannot be written to"):
        demo.run_demo(None, tmp_path / "file" / "out", 1.0, 0, console())


def test_a_demo_of_infinite_seconds_is_refused(tmp_path):
    with pytest.raises(SettingError, match="--seconds is inf, not a number"):
        demo.run_demo(None, tmp_path, inf, 0, console())


def test_a_file_that_is_no_report_is_refused(tmp_path):
    path = tmp_path / "report.json"
    for text in ("", "{}", "[]", '{"headway_report": 99}'):
        path.write_text(text)
        with pytest.raises(SettingError, match=r"report\.json"):
            report_json.read(path)
