"""Between which rates, or loads, a capacity can be looked for with the traffic at hand."""

from dataclasses import dataclass, replace

from headway.commands.simulate.simulated_testbed import simulated_experiment
from headway.commands.simulate.sweep_point import Job
from headway.commands.simulate.sweep_setting import asked_at
from headway.errors import SettingError
from headway.runs.experiment import Experiment
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.selection import DEFAULT_LOAD, MAX_REQUESTS, Demand, select_requests

HIGHEST_LOAD = 4.0  # device-seconds per second: four times what full batches could do
LOWEST_SHARE = 1 / 8  # of the load that a comparison has by itself
HALVINGS = 12  # of the distance to it, when too many requests are in the way
LIMIT = f"{HIGHEST_LOAD:g} device-seconds per second at full batches"


@dataclass(frozen=True, slots=True)
class SweepRange:
    low: float
    high: float
    end: str  # why not higher, in words


def sweep_range(job: Job, services: list[EndpointTraffic]) -> SweepRange:
    """job.setting: `rate` or `load`. SettingError where there is no rate to turn."""
    if not services:
        return SweepRange(DEFAULT_LOAD * LOWEST_SHARE, HIGHEST_LOAD, LIMIT)
    if all(each.rate for each in services):
        raise SettingError(
            "every lane has a rate of its own, so there is none to turn: give one of them a weight"
        )
    asked = asked_at(replace(job.asked, rate=0.0), "load", DEFAULT_LOAD)
    experiment = simulated_experiment(asked, job.calibration, services)
    own = sum(each.rate for each in services)
    rate = experiment.work.rate
    low, high = own + (rate - own) * LOWEST_SHARE, own + (rate - own) * HIGHEST_LOAD / DEFAULT_LOAD
    if job.setting == "load":
        low, high = DEFAULT_LOAD * LOWEST_SHARE, HIGHEST_LOAD
    if _is_small_enough(high, job, experiment, services):
        return SweepRange(low, high, LIMIT)
    if not _is_small_enough(low, job, experiment, services):
        raise SettingError(
            f"in {job.asked.seconds:g} s there are more than {MAX_REQUESTS:,} requests at any "
            "rate: take fewer --seconds"
        )
    return SweepRange(
        low,
        _highest_rate(low, high, job, experiment, services),
        f"more than {MAX_REQUESTS:,} requests",
    )


def _highest_rate(
    low: float, high: float, job: Job, experiment: Experiment, services: list[EndpointTraffic]
) -> float:
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _is_small_enough(middle, job, experiment, services) else (low, middle)
        )
    return low


def _is_small_enough(
    value: float, job: Job, experiment: Experiment, services: list[EndpointTraffic]
) -> bool:
    """Whether the requests are not too many: those of processes that are drawn for so long."""
    demand, span = Demand(**{job.setting: value}), round(job.asked.seconds * 1e9)
    price, seed, context = experiment.speed.token_cost, job.asked.seed, experiment.testbed.context
    made = select_requests(services, demand, price, span, seed, context)
    return sum(each.count for each in made.portions.values()) <= MAX_REQUESTS
