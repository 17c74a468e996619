"""Testbeds whose steps take the cost model's time, and the experiment that runs on them."""

from collections.abc import Sequence
from dataclasses import replace

from headway.commands.compare.compare import CompareOptions, prepare
from headway.core.cost.step_cost import Residuals
from headway.costing.calibration import Calibration
from headway.runs.experiment import Experiment
from headway.runs.machine_speed import MachineSpeed
from headway.runs.simulated_testbed import simulated_testbed
from headway.runs.testbed import Testbed
from headway.traffic.endpoint_traffic import EndpointTraffic

REPEATS = 1_000  # the most per seed: further repeats would use the next seed's residuals


def noiseless_testbed(calibration: Calibration) -> Testbed:
    """A testbed on which each step takes exactly its predicted time.

    Budgets are multiples of a single request's time. A single request draws few residuals, so with
    residuals the budgets would depend on chance.
    """
    cost = replace(calibration.cost, residuals=(Residuals(), Residuals()))
    return simulated_testbed(replace(calibration, cost=cost), 0)


def noisy_testbed(calibration: Calibration, seed: int, repeat: int) -> Testbed:
    """A testbed whose steps take the predicted time, varied by a random residual.

    Each run gets a new testbed, whose nth step draws the nth residual. Repeats differ only in
    their residuals. The strategies of one repeat share the same residuals.
    """
    return simulated_testbed(calibration, REPEATS * seed + repeat)


def simulated_experiment(
    options: CompareOptions,
    calibration: Calibration,
    services: Sequence[EndpointTraffic],
    speed: MachineSpeed | None = None,
) -> Experiment:
    """The experiment of the options: budgets and prices measured on the noiseless testbed.

    speed: that testbed's, measured already for the same endpoints and seed; None: measure it.
    """
    return prepare(noiseless_testbed(calibration), options, list(services), speed)
