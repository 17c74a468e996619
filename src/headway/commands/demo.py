"""`headway demo`: recorded traffic under three strategies in a minute, and its report."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from headway.commands.compare.compare import CompareOptions, ComparisonRun, prepare, run_comparison
from headway.report.report_json import writable
from headway.runs.testbed import Testbed
from headway.strategies.registry import StrategyInputs
from headway.strategies.strategy import Strategy, demo_strategies
from headway.traffic.demo_workload import DEMO_LOAD
from headway.traffic.selection import DEFAULT_LOAD
from headway.yaml_values import number

NAMES = ("static", "dynamic", "continuous")
BASELINE = NAMES[0]


def run_demo(model: str | None, out: Path, seconds: float, seed: int, console: Console) -> int:
    """Serve the demo and write its report; return the command's exit status.

    model: a checkpoint's folder or hub id; None: the embedded one. seconds: of arrivals, for
    each strategy. Raises a HeadwayError for what the user can mend.
    """
    number(seconds, "--seconds")
    options = demo_options(writable(out), seconds, seed, model)
    return run_comparison(
        options, console, lambda testbed: demo_comparison(testbed, options, console)
    )


def demo_options(out: Path, seconds: float, seed: int, model: str | None = None) -> CompareOptions:
    """The options of the comparison that the demo runs.

    `CompareOptions.seconds` is the time that the requests would take at `DEFAULT_LOAD`.
    The demo offers them at its own, higher load and ends sooner.
    """
    span = seconds * DEMO_LOAD / DEFAULT_LOAD
    return CompareOptions(
        model, seconds=span, load=DEMO_LOAD, seed=seed, baseline=BASELINE, out=out
    )


def demo_comparison(testbed: Testbed, options: CompareOptions, console: Console) -> ComparisonRun:
    """Measure the machine, and select the requests that all three strategies are offered."""
    makes = {name: _maker(name) for name in NAMES}
    return ComparisonRun(
        prepare(testbed, options, []), makes, options, options.out, console, command="demo"
    )


def _maker(name: str) -> Callable[[StrategyInputs], Strategy]:
    """One of the three, fitted to the endpoints and the machine."""

    def make(inputs: StrategyInputs) -> Strategy:
        strategies = demo_strategies(inputs.lanes, inputs.token_cost, inputs.context)
        return next(each for each in strategies if each.name == name)

    return make
