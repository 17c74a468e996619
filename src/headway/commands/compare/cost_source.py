"""The cost model with which strategies of a live comparison predict: from a file, or learned."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.text import Text

from headway.commands.calibrate.quick import learn_quickly
from headway.core.lane import Lane
from headway.costing.calibration import Calibration, read_cost_file
from headway.costing.machine import describe_machine
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.executor.traits import Traits
from headway.runs.experiment import Experiment
from headway.runs.testbed import Testbed
from headway.strategies.from_yaml import StrategyMaker
from headway.strategies.strategy_inputs import StrategyInputs

LYING_HERE = Path("cost.json")  # where headway calibrate writes by default
SECONDS = 4.0  # of learning
ANY = StrategyInputs((Lane(),), TokenCost(1.0, 1.0), 2_048)  # any inputs, to look at the policies
SAME_MACHINE = ("processor", "cores")


def predicting(makes: Mapping[str, StrategyMaker]) -> list[str]:
    """The names of the strategies that predict times."""
    return [name for name, make in makes.items() if make(ANY).policies.predicting]


def runnable(
    makes: Mapping[str, StrategyMaker], traits: Traits, named: bool, console: Console
) -> dict[str, StrategyMaker]:
    """The strategies that an executor with these traits can run. named: as in `possible`."""
    causes = dict[str, SettingError]()
    for name, make in makes.items():
        try:
            traits.check_policies(make(ANY).policies)
        except SettingError as error:
            causes[name] = error
    for name, cause in causes.items() if named else ():
        raise SettingError(f"the strategy {name}: {cause}") from cause
    if causes:
        left_out = f"Without {', '.join(causes)}: {traits.name} computes no padding."
        console.print(Text(left_out, style="yellow"))
    return {name: make for name, make in makes.items() if name not in causes}


def possible(
    makes: Mapping[str, StrategyMaker], cost: Path | None, named: bool, console: Console
) -> dict[str, StrategyMaker]:
    """The strategies that have a cost model, or will have one; checked before the runs.

    named: whether the user named the strategies. Then none can be left out, and SettingError is
    raised instead.
    """
    names = predicting(makes)
    if cost is not None:
        read_cost_file(cost)
    if not names or cost is not None or LYING_HERE.is_file() or find_spec("scipy") is not None:
        return dict(makes)
    remedy = (
        "name a cost file of headway calibrate with --cost, or pip install 'headway[calibrate]' "
        "to have one learned"
    )
    if named:
        raise SettingError(f"{_predict(names)} times, and there is no cost model: {remedy}")
    console.print(Text(f"Without {', '.join(names)}: {remedy}.", style="yellow"))
    return {name: make for name, make in makes.items() if name not in names}


def with_cost(
    experiment: Experiment, names: Collection[str], cost: Path | None, console: Console
) -> Experiment:
    """Return the experiment with a cost model, and print where the model is from.

    names: the strategies that predict; if there are none, only `cost` is read. cost: the file the
    user named. None: take LYING_HERE if it is for this model and machine, else learn a model now,
    with the chosen threads. Raises SettingError if `cost` is for another model or device.
    """
    testbed = experiment.testbed
    if cost is not None:
        found = read_cost_file(cost)
        found.check_model(testbed.model, testbed.dtype, testbed.kind)
        found.check_device(testbed.device)
        testbed = replace(testbed, cost=found.cost, cost_source=_of_file(cost, found))
    elif not names:
        return experiment
    elif (lying := _lying_here(testbed)) is not None:
        testbed = replace(testbed, cost=lying.cost, cost_source=_of_file(LYING_HERE, lying))
    else:
        quick = learn_quickly(testbed, experiment.seed, SECONDS)
        source = f"learned in {SECONDS:g} s from {quick.steps} steps (mean error {quick.error:.0%})"
        testbed = replace(testbed, cost=quick.cost, cost_source=source)
    sentence = f"{_predict(names)} times; the cost model was {testbed.cost_source}."
    if not names:
        source = testbed.cost_source
        sentence = f"No strategy predicts times; the cost model {source} is only recorded."
    console.print(Text(sentence))
    return replace(experiment, testbed=testbed)


def _of_file(path: Path, found: Calibration) -> str:
    doubt = f", which is unreliable: {found.doubt}" if found.doubt else ""
    return f"read from {path.name}{doubt}"


def _lying_here(testbed: Testbed) -> Calibration | None:
    """The cost file in this folder, if it is reliable and measured with this model and machine."""
    try:
        found = read_cost_file(LYING_HERE)
    except SettingError:
        return None
    here, there = describe_machine(), found.machine
    is_same = (
        (found.model, found.dtype, found.device) == (testbed.model, testbed.dtype, testbed.device)
        and found.executor == testbed.kind
        and not found.analytical
        and not found.doubt
        and all(here.get(name) == there.get(name) for name in SAME_MACHINE)
    )
    return found if is_same else None


def _predict(names: Collection[str]) -> str:
    return f"{', '.join(names)} predict{'' if len(names) > 1 else 's'}"
