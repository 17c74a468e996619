"""A small comparison on the fake executor in virtual time."""

from io import StringIO

from rich.console import Console

from headway.commands.compare.compare import Asked, Contest, prepare
from headway.strategies.from_yaml import read_strategies
from tests.commands.testbeds import fake_testbed

FEW = "static,dynamic-global,dynamic-lanes,continuous-prefill-first,continuous-chunk-64"


def contest(folder, machine=None, services=(), **wishes):
    """A comparison without loading a model."""
    wishes = {"seconds": 20.0, "strategies": FEW, "out": folder} | wishes
    asked = Asked(**wishes)
    setting = prepare(machine or fake_testbed(), asked, list(services))
    screen = Console(file=StringIO(), width=100, force_terminal=False)
    return Contest(setting, read_strategies(asked.strategies), asked, folder, screen)


def compared(folder, machine=None, services=(), **wishes):
    """Run it; gives the exit status and the output."""
    made = contest(folder, machine, services, **wishes)
    return made.run(), made.console.file.getvalue()
