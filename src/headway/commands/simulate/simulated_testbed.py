"""A simulated machine with its traffic: whatever is run on it takes the cost model's time."""

from collections.abc import Sequence
from dataclasses import replace

from headway.commands.compare.compare import Asked, prepare
from headway.core.cost.step_cost import Residuals
from headway.costing.calibration import Calibration
from headway.runs.experiment import Experiment
from headway.runs.testbed import Testbed, simulated_testbed
from headway.traffic.endpoint_traffic import EndpointTraffic

REPEATS = 1_000  # of one seed, before another one's residuals come again


def noiseless_testbed(calibration: Calibration) -> Testbed:
    """On which each step takes its price: a single request draws few residuals, and a budget that
    is a multiple of it would depend on their luck."""
    cost = replace(calibration.cost, residuals=(Residuals(), Residuals()))
    return simulated_testbed(replace(calibration, cost=cost), 0)


def noisy_testbed(calibration: Calibration, seed: int, repeat: int) -> Testbed:
    """Fresh for each run, whose nth step gets the nth numbers. Repeats differ in these alone;
    strategies of one repeat have them in common, and what time makes of them is their own."""
    return simulated_testbed(calibration, REPEATS * seed + repeat)


def simulated_experiment(
    asked: Asked, calibration: Calibration, services: Sequence[EndpointTraffic]
) -> Experiment:
    """Budgets and prices as the quiet testbed has them, and the traffic that was asked for."""
    return prepare(noiseless_testbed(calibration), asked, list(services))
