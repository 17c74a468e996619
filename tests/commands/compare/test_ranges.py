"""A window that follows the load inside a range, in a simulation and on a server."""

import json
from io import StringIO

import pytest
from rich.console import Console

from headway.commands.compare.compare import CompareOptions, run_compare
from headway.commands.compare.ranges import check_ranges
from headway.commands.simulate.simulate import SimulateOptions, run_simulate
from headway.commands.tune.candidate import Candidate
from headway.commands.tune.site import Site
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.strategies.from_yaml import read_strategies
from headway.strategies.strategy_inputs import StrategyInputs
from headway.traffic.from_yaml import read_endpoints
from tests.commands.small_cost_model import CALIBRATION

MS = 1_000_000
LANES = """
chat:
  arrivals: poisson
  prompt: 20
  answer: 4
  budget: {ttft: 4000}
  window: {between: [5, 800]}
bulk: {arrivals: poisson, prompt: 30, answer: 4, window: 60}
"""


def services(folder, text=LANES):
    path = folder / "lanes.yaml"
    path.write_text(text)
    return path, read_endpoints(path)


def test_a_simulation_moves_the_window_inside_its_range(tmp_path):
    path, _ = services(tmp_path)
    options = CompareOptions(
        lanes=path, strategies="dynamic-lanes", rate=20.0, seconds=60.0, out=tmp_path
    )
    screen = Console(file=StringIO(), width=100)
    assert run_simulate(SimulateOptions(options, CALIBRATION), screen) == 0
    (found,) = json.loads((tmp_path / "report.json").read_text())["strategies"]
    join = found["policies"]["join"]
    assert (join["windows"], join["lows"]) == (
        {"chat": 800 * MS, "bulk": 60 * MS},
        {"chat": 5 * MS},
    )
    changes = found["size_changes"]["columns"]
    rows = [dict(zip(changes, each, strict=True)) for each in found["size_changes"]["rows"]]
    assert {(each["lane"], each["what"]) for each in rows} == {("chat", "window")}
    assert rows[0]["before"] == 5 * MS, "it begins with the shortest"
    assert all(5 * MS <= each["after"] <= 800 * MS for each in rows)


def test_a_server_gets_the_same_windows_as_a_comparison(tmp_path):
    _, read = services(tmp_path)
    lanes = tuple(each.endpoint.lane({}) for each in read)
    stated = {each.name: each.window for each in read}
    place = Site(lanes, stated, (64,), 2_048, 16, "cost.json", "")
    plain = place.plain(Candidate("dynamic-lanes", 16, window=25))["lanes"]
    assert plain["chat"]["window"] == {"between": ["5ms", "800ms"]}
    served = place.config(Candidate("dynamic-lanes", 16, window=25)).policies.join
    site = StrategyInputs(lanes, None, 2_048, stated=stated)
    compared = read_strategies("dynamic-lanes")["dynamic-lanes"](site).policies.join
    for name in ("chat", "bulk"):
        assert served.windows[name] == compared.windows[name]
        assert served.lows.get(name, NEVER) == compared.lows.get(name, NEVER)


@pytest.mark.parametrize("names", ["dynamic-lanes", "static,dynamic-global"])
def test_a_window_range_that_any_strategy_uses_is_accepted(tmp_path, names):
    _, read = services(tmp_path)
    check_ranges(read, read_strategies(names))


def test_a_window_range_that_no_strategy_uses_is_refused_with_its_lane(tmp_path):
    path, read = services(tmp_path)
    said = "chat: window: 5 to 800 ms follows the load, and no strategy"
    for names in ("length-classes", "budgets,continuous-mixed"):
        with pytest.raises(SettingError, match=said):
            check_ranges(read, read_strategies(names))
    options = CompareOptions(lanes=path, strategies="budgets", out=tmp_path)
    with pytest.raises(SettingError, match=said):
        run_compare(options, Console(file=StringIO()))
    with pytest.raises(SettingError, match=said):
        run_simulate(SimulateOptions(options, CALIBRATION), Console(file=StringIO()))
    own = tmp_path / "own.yaml"
    own.write_text("mine: {join: {dynamic: {windows: {chat: {between: [5, 900]}}}}}")
    with pytest.raises(SettingError, match=said):
        check_ranges(read, read_strategies(str(own)))


def test_a_fixed_window_is_accepted_even_if_no_strategy_uses_it(tmp_path):
    _, read = services(tmp_path, "bulk: {arrivals: poisson, prompt: 3, answer: 4, window: 60}")
    check_ranges(read, read_strategies("budgets"))


def test_a_window_range_with_swapped_ends_is_refused_with_its_lane(tmp_path):
    with pytest.raises(SettingError, match=r"lanes.yaml: chat: window: a window between 800 and 5"):
        services(tmp_path, LANES.replace("[5, 800]", "[800, 5]"))
