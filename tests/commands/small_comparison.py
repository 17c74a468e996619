"""A small comparison on the fake executor in virtual time."""

from io import StringIO

from rich.console import Console

from headway.commands.compare.compare import CompareOptions, ComparisonRun, prepare
from headway.strategies.from_yaml import read_strategies
from tests.commands.testbeds import fake_testbed

FEW = "static,dynamic-global,dynamic-lanes,continuous-prefill-first,continuous-chunk-64"


def comparison_run(folder, machine=None, services=(), **wishes):
    """A comparison without loading a model."""
    wishes = {"seconds": 20.0, "strategies": FEW, "out": folder} | wishes
    options = CompareOptions(**wishes)
    setting = prepare(machine or fake_testbed(), options, list(services))
    screen = Console(file=StringIO(), width=100, force_terminal=False)
    return ComparisonRun(setting, read_strategies(options.strategies), options, folder, screen)


def compared(folder, machine=None, services=(), **wishes):
    """Run a comparison; return the exit status and the output."""
    made = comparison_run(folder, machine, services, **wishes)
    return made.run(), made.console.file.getvalue()
