"""Small reports of comparisons, and `headway report` of them."""

import json
from io import StringIO

from rich.console import Console

from headway.commands.report.report import ReportOptions, run_report
from headway.core.cost.step_cost import StepCost
from headway.traffic.from_yaml import read_endpoints
from tests.commands.small_comparison import compared
from tests.commands.testbeds import COST, fake_testbed

NAMES = "static,continuous-chunk-64"
SLOWER = StepCost.of(3_600_000, per_token=120_000, per_pair=24)
RATE = {"rate": 6.0, "seconds": 28.0}
LANES = """
chat: {arrivals: poisson, prompt: [20, 200], answer: 20, budget: {ttft: 60, tpot: 30}, weight: 3}
voice: {arrivals: poisson, prompt: 16, answer: 8, budget: {ttft: 40}}
"""


def reported(*files, width=80, **wishes):
    screen = Console(file=StringIO(), width=width, force_terminal=False)
    status = run_report(ReportOptions(files, **wishes), screen)
    return status, screen.file.getvalue()


def altered(file, folder, place, value):
    """The report with another value at this place of the JSON."""
    plain = json.loads(file.read_text())
    inner = plain
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    target = folder / "changed.json"
    target.write_text(json.dumps(plain))
    return target


MADE = {  # strategies, cost and seed of each report
    "quick": (NAMES, COST, 0),
    "slow": (NAMES, SLOWER, 0),
    "other": (NAMES, COST, 7),
    "one": ("static", COST, 0),
    "another": ("continuous-mixed", COST, 0),
    "longer": ("static", COST, 0),
}
LONGER = LANES.replace("answer: 20", "answer: 24")  # of "longer"


def small_reports(tmp_path_factory, names=tuple(MADE), **wishes):
    """Reports of the same requests on a machine and a slower one, of another seed, and of others.

    "one" has a single strategy, and "another" a strategy that no other report has. "longer" asks
    for longer answers of chat than "one".
    """
    made = {name: tmp_path_factory.mktemp(name) for name in names}
    for name, folder in made.items():
        strategies, cost, seed = MADE[name]
        lanes = folder / "lanes.yaml"
        lanes.write_text(LONGER if name == "longer" else LANES)
        services, testbed = read_endpoints(lanes), fake_testbed(cost=cost)
        asked = {"strategies": strategies, "seed": seed, **RATE, **wishes}
        assert compared(folder, testbed, services, **asked)[0] == 0
    return {name: folder / "report.json" for name, folder in made.items()}
