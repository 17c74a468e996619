"""The live check of headway tune: the recommended settings on the live model and simulated.

The fake executor on a virtual clock replaces the live model.
"""

import json
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from headway.commands.tune import search, tune, tuning
from headway.commands.tune.candidate import Candidate
from headway.commands.tune.live_check import Attained, LiveCheck, why_not_live
from headway.commands.tune.options import TuneOptions
from headway.commands.tune.site import read_back
from headway.commands.tune.trial import Rated
from headway.commands.tune.tune import run_tune
from headway.commands.tune.tuning import Tuning
from headway.core.cost.step_cost import StepCost
from headway.costing.calibration import write_cost_file
from headway.costing.machine import Neighbours, describe_machine
from headway.errors import HeadwayError
from headway.models import display_name
from tests.commands.small_cost_model import CALIBRATION, lanes
from tests.commands.testbeds import COST, fake_testbed

HERE = {**describe_machine(), "torch": "2.0"}
OURS = replace(CALIBRATION, model=display_name(None), machine=HERE)
FEW = [Candidate("continuous-mixed", 4, step_tokens=512), Candidate("first-come", 4, 64)]


def search_few(patch):
    patch.setattr(tuning, "first_candidates", lambda most, context, lanes: FEW)
    patch.setattr(search, "ROUNDS", 0)


@pytest.fixture
def few(monkeypatch):
    search_few(monkeypatch)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """What the search finds, without a live check. It is the same in every test."""
    found, searches = [], Tuning.run

    def run(self, pool, console):
        found.append(searches(self, pool, console))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        search_few(patch)
        patch.setattr(Tuning, "run", run)
        status, _, plain, _ = tuned(tmp_path_factory.mktemp("searched"), patch, live=False)
    assert status == 0 and plain["live"] == {"why_not": "it was not asked for (--no-live)"}
    return found[0]


@pytest.fixture
def once(few, searched, monkeypatch):
    """The search is not run again: its result is taken."""
    monkeypatch.setattr(Tuning, "run", lambda self, pool, console: searched)


def tuned(folder, monkeypatch, cost=COST, calibration=OURS, **wishes):
    """Tune with these live step times; return the status, the output, the JSON and each load."""
    loaded = []

    def load(calibration, model, slots):
        loaded.append(slots)
        if isinstance(cost, BaseException):
            raise cost
        return replace(fake_testbed(cost=cost), cost=calibration.cost)

    monkeypatch.setattr(tune, "live_testbed", load)
    monkeypatch.setattr("headway.commands.tune.live_check.describe_machine", lambda: HERE)
    write_cost_file(calibration, folder / "cost.json")
    wishes = {"lanes": lanes(folder), "requests": 25, "workers": 1, **wishes}
    out, evidence = folder / "headway.yaml", folder / "tune.json"
    options = TuneOptions(folder / "cost.json", out=out, json=evidence, **wishes)
    screen = Console(file=StringIO(), width=200)
    status = run_tune(options, screen)
    return status, screen.file.getvalue(), json.loads(evidence.read_text()), loaded


def test_a_live_model_as_fast_as_simulated_confirms_the_settings(tmp_path, once, monkeypatch):
    status, said, found, loaded = tuned(tmp_path, monkeypatch)
    live = found["live"]
    assert (status, live["kept"], len(loaded)) == (0, True, 1)
    assert live["rate"] == pytest.approx(0.9 * found["held_out"]["recommended"]["capacity"])
    first = live["attainment"]["recommended"]
    assert first["settings"] == found["recommended"]
    assert len(live["attainment"]) == 2, "a baseline is served too"
    for lane in ("chat", "voice"):
        assert first["live"][lane] == pytest.approx(first["simulated"][lane], abs=0.1)
        assert first["n"][lane] > 0
    text = (tmp_path / "headway.yaml").read_text()
    percent = f"chat {100 * first['live']['chat']:.1f} % (simulated"
    assert percent in said and "# Live: " in text and percent in text
    assert "every lane is kept with the recommended settings" in said
    read_back(tmp_path / "headway.yaml")


def test_a_slower_live_model_is_reported_to_break_its_lanes(tmp_path, once, monkeypatch):
    slow = StepCost.of(30_000_000, per_token=1_000_000, per_pair=20)
    monkeypatch.setattr(Neighbours, "cores", lambda self: 0.0)
    status, said, found, _ = tuned(tmp_path, monkeypatch, slow)
    assert status == 1 and not found["live"]["kept"]
    assert "chat, voice are not kept with the recommended settings" in said
    assert min(found["live"]["attainment"]["recommended"]["simulated"].values()) >= 0.95


@pytest.mark.evidence
def test_the_search_is_the_same_with_and_without_the_live_check(tmp_path, few, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    _, _, live, _ = tuned(one, monkeypatch, requests=10)
    status, said, plain, loaded = tuned(two, monkeypatch, live=False, requests=10)
    assert (status, loaded) == (0, [])
    assert plain["live"] == {"why_not": "it was not asked for (--no-live)"}
    assert "Not checked live: it was not asked for (--no-live)." in said
    assert live["held_out"] == plain["held_out"]


def test_the_baseline_is_first_come_or_else_the_servers_default():
    default, first_come = tuning.DEFAULTS["server's default"], tuning.DEFAULTS["first-come"]
    other = Candidate("budgets", 16)

    def served(chosen, others=tuning.DEFAULTS):
        found = SimpleNamespace(candidate=chosen)
        return Tuning.live_candidates(SimpleNamespace(others=others), found)

    assert served(other) == {"recommended": other, "first-come": first_come}
    assert served(first_come) == {"recommended": first_come, "server's default": default}
    assert served(default, {"server's default": default}) == {"recommended": default}


def test_a_given_rate_is_the_rate_of_the_live_check(tmp_path, few, monkeypatch):
    _, _, found, _ = tuned(tmp_path, monkeypatch, rate=8.0)
    assert found["live"]["rate"] == 8.0


def test_a_given_rate_that_breaks_a_lane_is_not_checked_live(tmp_path, few, monkeypatch):
    def overloaded(self, search, candidates, rate):
        scores = search.scores(candidates, 5_000.0, tuning.HELD_OUT)
        return {each: Rated.of(score) for each, score in scores.items()}

    monkeypatch.setattr(Tuning, "_held_out", overloaded)
    status, said, found, loaded = tuned(tmp_path, monkeypatch, rate=8.0)
    why_not = "8 requests/s does not keep every lane on the held-out windows"
    assert (status, found["live"], loaded) == (1, {"why_not": why_not}, [])
    assert f"Not checked live: {why_not}." in said


def test_a_model_that_does_not_load_leaves_the_settings_unchecked(tmp_path, once, monkeypatch):
    status, said, found, _ = tuned(tmp_path, monkeypatch, HeadwayError("no room for it"))
    assert status == 0 and found["live"] == {"why_not": "no room for it"}
    assert "Not checked live: no room for it." in said


def test_an_interrupted_live_check_keeps_the_settings_and_says_so(tmp_path, once, monkeypatch):
    status, said, found, _ = tuned(tmp_path, monkeypatch, KeyboardInterrupt())
    assert status == 130 and "were not checked live" in said
    assert found["live"] == {"why_not": "it was broken off"}
    assert "capacity" in found["held_out"]["recommended"]


def test_the_reason_against_a_live_check_is_stated(monkeypatch):
    monkeypatch.setattr("headway.commands.tune.live_check.describe_machine", lambda: HERE)
    assert why_not_live(OURS, None) == ""
    other = replace(OURS, model="other")
    assert why_not_live(other, None) == "no --model is given"
    assert why_not_live(other, "./other") == ""
    assert "data sheets" in why_not_live(replace(OURS, analytical=True), None)
    assert "of the executor vllm" in why_not_live(replace(OURS, executor="vllm"), None)
    elsewhere = replace(OURS, machine={**HERE, "cores": 4_000})
    assert why_not_live(elsewhere, None) == "the cost file was measured on another machine"
    bare = {**HERE, "torch": "none"}
    monkeypatch.setattr("headway.commands.tune.live_check.describe_machine", lambda: bare)
    assert "headway[torch]" in why_not_live(OURS, None)


def test_a_live_check_beside_busy_processes_refutes_nothing():
    found = Attained("budgets", {"chat": 1.0}, {"chat": 0.5}, {"chat": 90})
    alone = LiveCheck("", 5.0, 20.0, {"recommended": found}, 0.3)
    assert alone.is_refuted and alone.about.endswith(
        "chat is not kept with the recommended settings"
    )
    beside = replace(alone, others=0.7)
    assert beside.broken == ["chat"] and not beside.is_refuted
    assert beside.about.endswith("other processes used 0.7 cores, so this says little")
