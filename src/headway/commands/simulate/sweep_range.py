"""The range of rates, or loads, in which to search for the capacity."""

from dataclasses import dataclass, replace

from headway.commands.simulate.simulated_experiment import simulated_experiment
from headway.commands.simulate.sweep_point import Job
from headway.commands.simulate.sweep_setting import options_at
from headway.errors import SettingError
from headway.runs.experiment import Experiment
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.selection import DEFAULT_LOAD, MAX_REQUESTS, Demand, select_requests

HIGHEST_LOAD = 4.0  # device-seconds per second: four times what full batches can serve
LOWEST_SHARE = 1 / 8  # of DEFAULT_LOAD
HALVINGS = 12  # of the range, to find the highest rate without too many requests
LIMIT = f"{HIGHEST_LOAD:g} device-seconds per second at full batches"


@dataclass(frozen=True, slots=True)
class SweepRange:
    """The lowest and the highest rate, or load, that a search may try."""

    low: float
    high: float
    end: str  # what limits `high`, in words


def sweep_range(job: Job, services: list[EndpointTraffic]) -> SweepRange:
    """The range to search.

    job.setting is `rate` or `load`. Raises SettingError if every lane has a rate of its own, or if
    there are too many requests at any rate.
    """
    if not services:
        return SweepRange(DEFAULT_LOAD * LOWEST_SHARE, HIGHEST_LOAD, LIMIT)
    if all(each.rate for each in services):
        raise SettingError(
            "every lane has a rate of its own, so there is none to vary: give one of them a weight"
        )
    options = options_at(replace(job.options, rate=0.0), "load", DEFAULT_LOAD)
    experiment = simulated_experiment(options, job.calibration, services)
    own = sum(each.rate for each in services)
    rate = experiment.work.rate
    low, high = own + (rate - own) * LOWEST_SHARE, own + (rate - own) * HIGHEST_LOAD / DEFAULT_LOAD
    if job.setting == "load":
        low, high = DEFAULT_LOAD * LOWEST_SHARE, HIGHEST_LOAD
    if _is_small_enough(high, job, experiment, services):
        return SweepRange(low, high, LIMIT)
    if not _is_small_enough(low, job, experiment, services):
        raise SettingError(
            f"in {job.options.seconds:g} s there are more than {MAX_REQUESTS:,} requests at any "
            "rate: use fewer --seconds"
        )
    return SweepRange(
        low,
        _highest_rate(low, high, job, experiment, services),
        f"more than {MAX_REQUESTS:,} requests",
    )


def _highest_rate(
    low: float, high: float, job: Job, experiment: Experiment, services: list[EndpointTraffic]
) -> float:
    """The highest rate between the two whose requests are few enough, by bisection."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _is_small_enough(middle, job, experiment, services) else (low, middle)
        )
    return low


def _is_small_enough(
    value: float, job: Job, experiment: Experiment, services: list[EndpointTraffic]
) -> bool:
    """Whether a job at this rate, or load, draws at most MAX_REQUESTS requests."""
    demand, span = Demand(**{job.setting: value}), round(job.options.seconds * 1e9)
    price, seed, context = experiment.speed.token_cost, job.options.seed, experiment.testbed.context
    selection = select_requests(services, demand, price, span, seed, context)
    return sum(each.count for each in selection.portions.values()) <= MAX_REQUESTS
