"""`headway demo`: recorded traffic under four strategies, and its report."""

from pathlib import Path

from rich.console import Console

from headway.commands.compare.compare import CompareOptions, ComparisonRun, prepare, run_comparison
from headway.commands.compare.cost_source import possible, predicting, with_cost
from headway.report.report_json import writable
from headway.runs.testbed import Testbed
from headway.strategies.from_yaml import StrategyMaker
from headway.strategies.registry import find_strategy
from headway.strategies.strategy import Strategy, demo_strategies
from headway.strategies.strategy_inputs import StrategyInputs
from headway.traffic.demo_workload import DEMO_LOAD
from headway.traffic.selection import DEFAULT_LOAD
from headway.yaml_values import number

BASELINE = "static"
BY_BUDGETS = "budgets"
NAMES = (BASELINE, "dynamic", "continuous", BY_BUDGETS)


def run_demo(model: str | None, out: Path, seconds: float, seed: int, console: Console) -> int:
    """Serve the demo and write its report; return the command's exit status.

    model: a checkpoint's folder or hub id; None: the embedded one. seconds: of arrivals, for
    each strategy. Raises a HeadwayError for errors the user can fix.
    """
    number(seconds, "--seconds")
    options = demo_options(writable(out), seconds, seed, model)
    return run_comparison(
        options, console, lambda testbed: demo_comparison(testbed, options, console)
    )


def demo_options(out: Path, seconds: float, seed: int, model: str | None = None) -> CompareOptions:
    """The options of the comparison that the demo runs.

    `CompareOptions.seconds` is the time that the requests would take at `DEFAULT_LOAD`. The demo
    offers them at its own, higher load, `DEMO_LOAD`, so they arrive within `seconds`.
    """
    span = seconds * DEMO_LOAD / DEFAULT_LOAD
    return CompareOptions(
        model, seconds=span, load=DEMO_LOAD, seed=seed, baseline=BASELINE, out=out
    )


def demo_comparison(testbed: Testbed, options: CompareOptions, console: Console) -> ComparisonRun:
    """Measure the machine, and select the requests that all strategies are offered."""
    wanted = {name: _maker(name) for name in NAMES}
    makes = possible(wanted, None, False, console)
    measured = with_cost(prepare(testbed, options, []), predicting(makes), None, console)
    return ComparisonRun(measured, makes, options, options.out, console, command="demo")


def _maker(name: str) -> StrategyMaker:
    """Return a function that makes the named demo strategy for given endpoints and machine."""
    if name == BY_BUDGETS:
        return find_strategy(name)

    def make(inputs: StrategyInputs) -> Strategy:
        strategies = demo_strategies(inputs.lanes, inputs.token_cost, inputs.context)
        return next(each for each in strategies if each.name == name)

    return make
