"""`headway simulate`: a comparison's report, in virtual time, the same bytes for the same seed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from html import unescape
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headway.cli import app
from headway.commands.compare.compare import CompareOptions
from headway.commands.compare.like import like
from headway.commands.simulate.simulate import SimulateOptions, run_simulate
from headway.core.cost.step_cost import StepCost
from headway.core.request import NEVER
from headway.costing.calibration import write_cost_file
from headway.errors import SettingError
from headway.report import report_json, reporter, run_description
from headway.report.analysis import Analysis
from headway.report.page.page import page
from headway.runs import provenance
from tests.commands.small_cost_model import CALIBRATION, lanes

FEW = "dynamic-lanes,continuous-chunk-64"


def simulated(folder, calibration=CALIBRATION, price=None, **wishes):
    """Run a simulation; return the exit status, the output and report.json as bytes."""
    wishes = {"seconds": 12.0, "strategies": FEW, "lanes": lanes(folder), "rate": 8.0} | wishes
    screen = Console(file=StringIO(), width=100, force_terminal=False)
    status = run_simulate(
        SimulateOptions(CompareOptions(out=folder, **wishes), calibration, price_per_hour=price),
        screen,
    )
    return status, screen.file.getvalue(), (folder / "report.json").read_bytes()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulate")
    status, said, kept = simulated(folder, repeat=2)
    assert status == 0
    return folder, said, kept


def test_an_unreliable_cost_model_is_called_unreliable():
    marked = {"errors": {"all": {"median": -503, "p90": 700, "total": -410}}}
    said = provenance.provenance_sentence(
        provenance.provenance_of(replace(CALIBRATION, about=marked))
    )
    assert "These times are unreliable" in said and "off by -50% in the median step" in said
    assert "unreliable" not in provenance.provenance_sentence(provenance.provenance_of(CALIBRATION))


@pytest.fixture(scope="module")
def found(ran):
    return Analysis(report_json.read(ran[0] / "report.json"))


def test_output_json_and_page_say_first_that_they_are_simulated(ran, found):
    folder, said, kept = ran
    sentence = provenance.provenance_sentence(json.loads(kept)["simulated"])
    assert "4 x Abacus 3" in sentence and "handmade in float32" in sentence
    words = " ".join(said.split())
    assert words.startswith(sentence)
    html = (folder / "report.html").read_text()
    head = html[: html.index("<main>")]
    assert sentence in unescape(head) and "headway simulate: handmade" in head
    stated = dict(run_description.stated(found))
    off = "memory +1.2 % in the median, 8.3 % at p90; compute -0.4 % in the median, 11.0 % at p90"
    assert off in sentence and stated["Its errors"] == off and stated["Date"] == "2026-01-31"
    alone = stated["Errors of a fit to designed batches alone"]
    assert alone == "memory -3.1 % in the median, 12.0 % at p90"
    assert stated["Designed batches"] == "1,204, of up to 2,048 tokens; mean error 4.3 %"
    assert "{" not in "".join(stated.values()), "no Python repr is printed"
    assert "3 threads" in stated["Model"], "the threads of the calibration"
    assert stated["Repeats"].startswith("2: the same arrivals, other residuals")


def test_the_report_says_how_well_promised_times_were_kept(ran, found):
    folder, said, kept = ran
    html = (folder / "report.html").read_text()
    assert "Times promised at admission" in said
    for each in json.loads(kept)["strategies"]:
        columns = each["requests"]["columns"]
        assert {"promised_first", "promised_end"} <= {*columns}
        for lane, promised in each["promises"].items():
            mine = found.promises[each["name"]][lane][each["repeat"]]
            assert promised["coverage"] == mine.coverage == mine.kept / mine.ended
            assert f'id="promises-{lane}"' in html
    blind = Analysis(replace(found.report, runs=without_promises(found.report.runs)))
    assert "promises-" not in page(blind), "without a cost model nothing is promised"


def without_promises(runs):
    def bare(outcome):
        rows = [replace(row, promised_first=NEVER, promised_end=NEVER) for row in outcome.requests]
        return replace(outcome, requests=tuple(rows))

    return {name: tuple(map(bare, repeats)) for name, repeats in runs.items()}


def test_the_report_says_nothing_about_the_machine_that_simulated(ran, found):
    _, said, kept = ran
    assert "Other processes" not in said and "decision 0006" not in said
    plain = json.loads(kept)
    assert "cores_of_other_processes" not in plain
    assert plain["machine"] == dict(CALIBRATION.machine)
    assert plain["command"] == "simulate"
    assert "Disturbed" not in dict(run_description.stated(found))


def test_a_data_sheet_may_have_more_slots_than_a_measuring_step_has_tokens(tmp_path):
    sheet = replace(CALIBRATION, analytical=True, slots=600, num_blocks=9_000, fit=9_000)
    status, said, _ = simulated(tmp_path, sheet, strategies="continuous-mixed", rate=2.0)
    assert status == 0 and "600 slots" in said


def test_a_page_that_cannot_be_written_leaves_the_one_before_it(tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    page.write_text("the page before")
    monkeypatch.setattr(reporter, "page", lambda found: "half a page \ud800")
    with pytest.raises(UnicodeEncodeError):
        simulated(tmp_path, seconds=4.0, strategies="first-come")
    assert page.read_text() == "the page before"


def test_steps_larger_than_the_cost_model_was_fitted_to_are_named(ran, tmp_path):
    few = replace(CALIBRATION, slots=2)
    mine = tmp_path / "mine.yaml"
    size = "{}: {{join: {{continuous: {{size: {}}}}}}}\n".format
    mine.write_text(size("wide", 6) + size("narrow", 2))
    _, said, _kept = simulated(tmp_path, few, strategies=str(mine), rate=60.0, seconds=4.0)
    steps = Analysis(report_json.read(tmp_path / "report.json")).first("wide").steps
    most = max(step.rows for step in steps)
    told = f"fitted to steps of up to 2 rows; wide had some of {most}, whose times are extrapolated"
    assert most > 2 and told in " ".join(said.split())
    assert told in (tmp_path / "report.html").read_text()
    assert "extrapolated" not in ran[1]


def test_an_analytical_cost_model_is_called_analytical(tmp_path):
    bare = replace(CALIBRATION, analytical=True, machine={"accelerator": "H100 SXM"}, about={})
    _, said, _ = simulated(tmp_path, bare, strategies="continuous-mixed")
    words = " ".join(said.split())
    assert "data sheets (analytical): nobody has measured it on H100 SXM." in words


def test_a_data_sheet_machine_is_simulated_with_its_own_slots_and_blocks(tmp_path):
    sheet = replace(CALIBRATION, analytical=True, slots=256, num_blocks=9_000, fit=9_000)
    (tmp_path / "own.yaml").write_text("mine: {join: continuous}\nstatic:\n")
    wishes = {"strategies": str(tmp_path / "own.yaml"), "baseline": "mine", "seconds": 4.0}
    _, said, kept = simulated(tmp_path, sheet, **wishes)
    words = " ".join(said.split())
    assert "simulated: 256 slots, 9,000 of the 9,000 KV blocks that fit (16 tokens each)" in words
    plain = json.loads(kept)
    rules = {each["name"]: each["rule"] for each in plain["rules"]}
    assert "groups of exactly 16," in rules["static"], "256 padded prompts would take a minute"
    assert (plain["model"]["slots"], plain["model"]["num_blocks"]) == (256, 9_000)
    sizes = {each["name"]: each["policies"]["join"]["size"] for each in plain["strategies"]}
    assert sizes == {"mine": 256, "static": 16}
    _, said, kept = simulated(tmp_path, replace(sheet, analytical=False), **wishes)
    assert "simulated: 16 slots" in " ".join(said.split()), (
        "as many as a comparison on that machine"
    )


def test_the_chunk_is_sized_for_the_rows_that_fit_into_the_memory(tmp_path):
    """A batch of all slots would alone exceed the budget, but the memory holds no such batch."""
    (tmp_path / "long.csv").write_text(
        "arrival_s,input_tokens,output_tokens\n" + "".join(f"{at},1000,8\n" for at in range(30))
    )
    path = tmp_path / "long.yaml"
    path.write_text("chat: {trace: long.csv, token_scale: 1, budget: {ttft: 900, tpot: 60}}\n")
    sheet = replace(CALIBRATION, analytical=True, slots=256, num_blocks=1_500)
    chosen = {}
    for slots in (256, 22):  # 22 such requests fit into the memory
        machine, wishes = replace(sheet, slots=slots), {"strategies": "first-come", "lanes": path}
        plain = json.loads(simulated(tmp_path, machine, **wishes)[2])
        chosen[slots] = plain["strategies"][0]["policies"]["chunk"]
    assert chosen[256] == chosen[22], chosen


def test_the_page_is_made_from_the_json_alone(ran, found):
    assert (ran[0] / "report.html").read_text(encoding="utf-8") == page(found)


def test_repeats_have_the_same_arrivals_and_different_residuals(found):
    for first, second in found.report.runs.values():
        arrived = [{(r.id, r.arrived, r.prompt) for r in each.requests} for each in (first, second)]
        assert arrived[0] == arrived[1]
        assert [r.nanoseconds for r in first.steps] != [r.nanoseconds for r in second.steps]


def test_budgets_do_not_depend_on_the_seed(tmp_path):
    wishes = {"seconds": 6.0, "strategies": "continuous-mixed"}
    kept = [json.loads(simulated(tmp_path, seed=seed, **wishes)[2]) for seed in (1, 2)]
    shapes = [each["endpoints"][0]["unloaded_shape"] for each in kept]
    for plain, shape in zip(kept, shapes, strict=True):
        prompt = shape["prompt"]
        alone = 3_000_000 + 100_000 * prompt + 20 * prompt * (prompt + 1) // 2
        assert plain["endpoints"][0]["unloaded_ns"]["ttft"] == alone
    assert kept[0]["strategies"][0]["requests"] != kept[1]["strategies"][0]["requests"]


def test_the_price_is_by_default_that_of_the_cost_file(ran, tmp_path):
    assert json.loads(ran[2])["price_per_hour"] == 0.25
    wishes = {"seconds": 3.0, "strategies": "continuous-mixed"}
    for price in (2.0, 0.0):
        assert json.loads(simulated(tmp_path, price=price, **wishes)[2])["price_per_hour"] == price
    unstated = replace(CALIBRATION, price_per_hour=0.0)
    assert json.loads(simulated(tmp_path, unstated, **wishes)[2])["price_per_hour"] == 1.0


AGAIN = """
import sys
from pathlib import Path
from tests.commands.simulate.test_simulate import simulated
simulated(Path(sys.argv[1]), repeat=2)
"""


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_same_seed_gives_the_same_bytes_in_any_process(ran, tmp_path, hash_seed):
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": hash_seed}
    subprocess.run([sys.executable, "-c", AGAIN, str(tmp_path)], cwd=root, env=env, check=True)
    assert (tmp_path / "report.json").read_bytes() == ran[2]
    assert (tmp_path / "report.html").read_bytes() == (ran[0] / "report.html").read_bytes()


@pytest.mark.parametrize(
    "within, name, value, said",
    [
        ((), "seed", "x", "seed is 'x'; a whole number from 0 on is wanted"),
        (("workload",), "window_ns", 0, "window_ns is 0; a whole number from 1 on"),
        (("workload", "asked"), "span_ns", "a", "span_ns is 'a'; a whole number from 1 on"),
        (("workload", "asked"), "rate", "4", "rate is '4', not a number"),
        (("workload", "price_ns"), "prompt", None, "price_ns: prompt is None, not a number"),
        (("workload", "lanes", "chat", "portion"), "within", 0, "chat: within is 0; a whole"),
        (("workload", "lanes", "chat", "portion"), "count", "9", "chat: count is '9', not a"),
    ],
)
def test_like_refuses_a_report_with_an_impossible_field(ran, tmp_path, within, name, value, said):
    plain = inner = json.loads(ran[2])
    for key in within:
        inner = inner[key]
    inner[name] = value
    (tmp_path / "odd.json").write_text(json.dumps(plain))
    with pytest.raises(SettingError, match=f"^odd.json is no report of .* had again: {said}"):
        like(tmp_path / "odd.json")


def test_workers_without_a_sweep_are_refused(tmp_path):
    asked = CompareOptions(out=tmp_path, lanes=lanes(tmp_path), rate=8.0)
    with pytest.raises(SettingError, match="--workers are those of --sweep or --capacity"):
        run_simulate(SimulateOptions(asked, CALIBRATION, workers=2), Console(file=StringIO()))


def test_a_strategys_result_does_not_depend_on_the_strategies_before_it(ran, tmp_path):
    kept = json.loads(simulated(tmp_path, strategies="continuous-chunk-64", repeat=2)[2])
    among = [e for e in json.loads(ran[2])["strategies"] if e["name"] == "continuous-chunk-64"]
    for alone, beside in zip(kept["strategies"], among, strict=True):
        assert alone["requests"] == beside["requests"] and alone["steps"] == beside["steps"]


@pytest.mark.parametrize(
    "wishes, said",
    [
        ({"model": "other"}, "is of handmade in float32, not of other: run headway calibrate"),
        ({"rate": -1.0}, "--rate must be 0 or more"),
        ({"rate": float("nan")}, "--rate must be 0 or more"),
        ({"rate": 1e6}, "lower the rate, or the seconds"),
        ({"seconds": 0.0}, "--seconds must be more than 0"),
        ({"lanes": None, "rate": 0.0, "load": 1e-300}, "a load of 1e-300 is too low"),
        ({"repeat": 0}, "--repeat must be from 1"),
        ({"strategies": "statc"}, "did you mean static"),
    ],
)
def test_impossible_options_are_refused_with_the_remedy(wishes, said, tmp_path):
    with pytest.raises(SettingError, match=said):
        simulated(tmp_path, **wishes)


def test_a_model_folder_matches_the_cost_file_by_its_name(tmp_path):
    folder = tmp_path / "models" / "handmade"
    folder.mkdir(parents=True)
    status, _, _ = simulated(tmp_path, model=str(folder), strategies="continuous-mixed")
    assert status == 0


def test_a_malformed_trace_is_refused_with_its_line(tmp_path):
    (tmp_path / "bad.csv").write_text("arrival_s,input_tokens,output_tokens\n0,1,1\n1,x,1\n")
    with pytest.raises(SettingError, match=r"bad\.csv, line 3: input_tokens is 'x'"):
        simulated(tmp_path, lanes=None, traces=(tmp_path / "bad.csv",))


def test_names_are_printed_as_they_are_and_not_read_as_markup(tmp_path):
    write_cost_file(CALIBRATION, tmp_path / "cost.json")
    lane = {"arrivals": "poisson", "prompt": 20, "answer": 4, "budget": {"ttft": 500}}
    traffic = {"[/x]chat": lane | {"tenants": {"[red]acme": 1, "b": 1}}, "[red]voice": lane}
    (tmp_path / "lanes.yaml").write_text(json.dumps(traffic))
    given = ["--cost", tmp_path / "cost.json", "--lanes", tmp_path / "lanes.yaml", "--rate", "9"]
    given += ["--seconds", "12", "--strategies", FEW, "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, ["simulate", *map(str, given)], env={"COLUMNS": "100"})
    assert done.exit_code == 0
    assert all(each in done.stdout for each in ("[/x]chat:", "[red]voice:", "[red]acme"))


def test_a_cost_file_without_times_is_refused(tmp_path):
    with pytest.raises(SettingError, match="holds no step times"):
        simulated(tmp_path, replace(CALIBRATION, cost=StepCost()))


def test_like_offers_a_reports_requests_under_another_cost_model(tmp_path):
    """On a faster machine, the same load would be different requests."""
    fast = replace(CALIBRATION, cost=StepCost.of(1_000_000, per_token=20_000, per_pair=2))
    for wishes in ({"lanes": None, "load": 0.2, "rate": 0.0}, {"load": 0.2, "rate": 0.0}, {}):
        (tmp_path / "first").mkdir(exist_ok=True)
        wishes = {"lanes": lanes(tmp_path), "rate": 8.0, "seconds": 5.0} | wishes
        simulated(tmp_path / "first", seed=3, strategies="continuous-mixed", **wishes)
        first = tmp_path / "first" / "report.json"
        wishes |= {"rate": 0.0, "load": 0.0, "seconds": CompareOptions().seconds}
        asked = CompareOptions(out=tmp_path, strategies="one-by-one", **wishes)
        screen = Console(file=StringIO(), width=100, force_terminal=False)
        assert run_simulate(SimulateOptions(asked, fast, like=first), screen) == 0
        runs = [report_json.read(each) for each in (first, tmp_path / "report.json")]
        seen = [
            sorted((r.id, r.arrived, r.prompt) for r in each.runs[name][0].requests)
            for each, name in zip(runs, ("continuous-mixed", "one-by-one"), strict=True)
        ]
        assert seen[0] == seen[1] and len(seen[0]) > 10


@pytest.mark.parametrize(
    "wishes, sweep, said",
    [
        ({"rate": 3.0}, "", "leave out --rate and --load"),
        ({"rate": 0.0, "seconds": 7.0}, "", "takes --seconds from a report, .*: leave it out"),
        ({"rate": 0.0, "seed": 5}, "", "takes --seed from a report, .*: leave it out"),
        ({"rate": 0.0, "token_scale": 1.0}, "", "takes --token-scale from a report, 8"),
        (
            {"rate": 0.0},
            "rate=1,2",
            "cannot be combined with a sweep or a capacity search over rate",
        ),
        ({"rate": 0.0, "lanes": None}, "", "is of the endpoints chat, voice, not of the demo"),
        (
            {"rate": 0.0, "lanes": "changed"},
            "",
            r"report\.json offered .* of chat, .*these endpoints",
        ),
    ],
)
def test_like_refuses_options_that_contradict_the_report(ran, tmp_path, wishes, sweep, said):
    path = lanes(tmp_path)
    if wishes.get("lanes") == "changed":
        path.write_text(path.read_text().replace("poisson", "{gamma: {cv: 4}}"))
        wishes = {"rate": 0.0}
    asked = CompareOptions(out=tmp_path, strategies=FEW, **{"lanes": path, **wishes})
    wanted = SimulateOptions(asked, CALIBRATION, sweep, like=ran[0] / "report.json")
    with pytest.raises(SettingError, match=said):
        run_simulate(wanted, Console(file=StringIO()))
