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
RATE = {"rate": 6.0, "seconds": 40.0}
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


def small_reports(tmp_path_factory):
    """Reports of the same requests on a machine and a slower one, of another seed, and of others.

    "one" has a single strategy, and "another" a strategy that no other report has.
    """
    made = {
        name: tmp_path_factory.mktemp(name) for name in ("quick", "slow", "other", "one", "another")
    }
    lanes = made["quick"] / "lanes.yaml"
    lanes.write_text(LANES)

    def make(name, strategies, cost=COST, seed=0):
        services, testbed = read_endpoints(lanes), fake_testbed(cost=cost)
        wishes = {"strategies": strategies, "seed": seed, **RATE}
        assert compared(made[name], testbed, services, **wishes)[0] == 0

    make("quick", NAMES)
    make("slow", NAMES, SLOWER)
    make("other", NAMES, seed=7)
    make("one", "static")
    make("another", "continuous-mixed")
    return {name: folder / "report.json" for name, folder in made.items()}
