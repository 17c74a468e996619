"""`headway demo`: recorded traffic under three strategies in a minute, and its report."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from headway.commands.compare.compare import Asked, Contest, prepare, run_contest
from headway.report.report_json import writable
from headway.runs.testbed import Testbed
from headway.strategies.registry import StrategyInputs
from headway.strategies.strategy import Strategy, demo_strategies
from headway.traffic import selection, workload
from headway.yaml_values import number

NAMES = ("static", "dynamic", "continuous")
BASELINE = NAMES[0]


def run_demo(model: str | None, out: Path, seconds: float, seed: int, console: Console) -> int:
    """Serve the demo and write its report; return the command's exit status.

    model: a checkpoint's folder or hub id; None: the embedded one. seconds: of arrivals, for
    each strategy. Raises a HeadwayError for what the user can mend.
    """
    number(seconds, "--seconds")
    asked = asked_of(writable(out), seconds, seed, model)
    return run_contest(asked, console, lambda testbed: contest_of(testbed, asked, console))


def asked_of(out: Path, seconds: float, seed: int, model: str | None = None) -> Asked:
    """The demo as a comparison. `Asked.seconds` is the time that its requests would take at
    `selection.LOAD`; the demo offers them at its own, higher load and is done sooner."""
    load = workload.DEMO_LOAD
    span = seconds * load / selection.DEFAULT_LOAD
    return Asked(model, seconds=span, load=load, seed=seed, baseline=BASELINE, out=out)


def contest_of(testbed: Testbed, asked: Asked, console: Console) -> Contest:
    """Measure the machine, and choose what all three strategies are offered."""
    makes = {name: _maker(name) for name in NAMES}
    return Contest(prepare(testbed, asked, []), makes, asked, asked.out, console, command="demo")


def _maker(name: str) -> Callable[[StrategyInputs], Strategy]:
    """One of the three, fitted to the endpoints and the machine."""

    def make(inputs: StrategyInputs) -> Strategy:
        made = demo_strategies(inputs.lanes, inputs.token_cost, inputs.context)
        return next(each for each in made if each.name == name)

    return make
