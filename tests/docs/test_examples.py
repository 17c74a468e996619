"""The example folders: traces from their script, and what tune says of their lanes."""

import importlib.util
import json
import re
from pathlib import Path

import httpx2
import pytest
import yaml

from headway.commands.tune.options import TuneOptions
from headway.commands.tune.site import Setup, read_back
from headway.commands.tune.trial import Trial, run_trial
from headway.commands.tune.tune_report import FIRST_LINE
from headway.commands.tune.tuning import HELD_OUT, prepare_tuning
from headway.costing.calibration import read_cost_file
from headway.server.config.config import ServerConfig
from headway.server.config.validate import check_files
from headway.server.functions.target import find
from headway.traffic.from_yaml import read_endpoints
from tests.server.running_server import by_budgets, relay, serving, tiny

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = ("code_assistant", "four_endpoints", "support_desk", "voice_agent")
README = (EXAMPLES / "README.md").read_text()


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    """The commands run in the root and name their files from there."""
    monkeypatch.chdir(ROOT)


def evidence(name):
    return json.loads((EXAMPLES / name / "tune.json").read_text())


def requests_of(name):
    """The requests of a window, from the command in the file that made the output."""
    text = (EXAMPLES / name / "lanes.yaml").read_text()
    command = re.search(
        r"headway tune --cost examples/cost.json --lanes (\S+) --requests (\d+)", text
    )
    assert command[1] == f"examples/{name}/lanes.yaml"
    return int(command[2])


def test_the_script_makes_the_committed_traces():
    spec = importlib.util.spec_from_file_location("traces_of_examples", EXAMPLES / "traces.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    here = {str(path.relative_to(EXAMPLES))[:-4] for path in EXAMPLES.glob("*/*.csv")}
    assert here == set(script.TRACES)
    for name in here:
        path = EXAMPLES / f"{name}.csv"
        assert path.read_text() == script.csv(name), name
        assert path.stat().st_size <= 200_000


def test_the_guide_links_every_example_folder_and_each_has_its_files():
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} - {"__pycache__"} == set(
        FOLDERS
    )
    for name in FOLDERS:
        assert f"[{name}]({name}/lanes.yaml)" in README
        assert {path.name for path in (EXAMPLES / name).iterdir()} >= {
            *("lanes.yaml", "headway.yaml", "tune.json")
        }


def test_the_four_endpoints_folder_has_the_lanes_of_four_endpoints_yaml():
    plain = yaml.safe_load((EXAMPLES / "four_endpoints.yaml").read_text())
    traced = yaml.safe_load((EXAMPLES / "four_endpoints" / "lanes.yaml").read_text())
    for name, fields in plain.items():
        same = {key: fields[key] for key in ("serves", "weight", "window", "budget")}
        assert {key: traced[name][key] for key in same} == same


@pytest.mark.parametrize("name", FOLDERS)
def test_a_tuned_configuration_is_valid_and_its_figures_are_those_of_tune_json(name):
    path = EXAMPLES / name / "headway.yaml"
    text, found = path.read_text(), evidence(name)
    config = read_back(path)
    assert check_files(config) == ()
    lanes = [each.name for each in read_endpoints(EXAMPLES / name / "lanes.yaml")]
    assert text.startswith(FIRST_LINE) and list(config.lanes) == lanes
    assert yaml.safe_load(text) == found["config"]
    words = " ".join(line.removeprefix("#").strip() for line in text.splitlines())
    for held in ("recommended", "server's default", "first-come"):
        rate = found["held_out"][held]["capacity"]
        assert re.search(rf"Held-out windows, {held}.*?: {re.escape(f'{rate:.3g}')} ", words)
        assert f"{rate:.3g}" in README


@pytest.mark.evidence
@pytest.mark.parametrize("name", FOLDERS)
def test_the_tuned_settings_reach_the_recorded_attainment(name):
    """The tolerance is for versions of the scheduler that decide a few requests differently."""
    held = evidence(name)["held_out"]["recommended"]
    options = TuneOptions(
        Path("examples/cost.json"),
        lanes=EXAMPLES / name / "lanes.yaml",
        requests=requests_of(name),
    )
    config = read_back(EXAMPLES / name / "headway.yaml")
    setup = Setup(config.policies, config.core_lanes, config.engine.slots)
    score = run_trial(Trial(prepare_tuning(options).course, setup, held["capacity"], HELD_OUT))
    assert score.attainment == pytest.approx(held["attainment"], abs=0.03)


def by_their_policies(config):
    """The embedded model, scheduled by the policies and the cost file of the configuration."""
    plan, cost = tiny().plan, read_cost_file(Path(config.engine.cost)).cost
    relay().hand_over()
    return by_budgets(config, relay(), cost, plan.num_blocks, plan.context)


@pytest.mark.parametrize("name", ["four_endpoints", "voice_agent"])
def test_a_server_answers_with_an_examples_configuration(name):
    config = ServerConfig.load(EXAMPLES / name / "headway.yaml")
    lane = next(iter(evidence(name)["config"]["lanes"]))
    body = {"model": f"headway-tiny@{lane}", "prompt": "The json module"}
    body |= {"max_tokens": 3, "ignore_eos": True}
    with serving(config, by_their_policies) as (url, _):
        answer = httpx2.post(f"{url}/v1/completions", json=body, timeout=60)
        lanes = httpx2.get(f"{url}/v1/lanes").json()["data"]
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert [each["id"] for each in lanes] == list(evidence(name)["config"]["lanes"])


def test_the_example_of_several_models_loads_and_its_function_runs():
    path = EXAMPLES / "several_models.yaml"
    config = ServerConfig.load(path)
    assert [each.served_name for each in config.models] == [
        *("writer", "embedder", "reranker", "overlap")
    ]
    assert [each.engine.slots for each in config.entries] == [16, 32, 64]
    assert len(check_files(config)) == 3, "two are on the hub, and a function is not imported"
    target = find(config.functions[0].function)
    pair = target.item.validate_python({"query": "a list", "document": "What a set is"})
    assert target.function([pair]) == [0.5]


def test_the_example_of_routes_is_valid_with_a_cascade_a_fallback_and_rules():
    config = ServerConfig.load(EXAMPLES / "routes.yaml")
    kinds = {name: route.kind for name, route in config.routes.items()}
    assert kinds == {"assistant": "cascade", "safe": "fallback", "chat": "rules"}
    assert check_files(config) == ()
