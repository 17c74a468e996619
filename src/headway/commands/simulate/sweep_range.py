"""Between which rates, or loads, a capacity can be looked for with the traffic at hand."""

from dataclasses import dataclass, replace

from headway.commands.simulate.simulated_rig import staged
from headway.commands.simulate.sweep_point import Job
from headway.commands.simulate.sweep_setting import asked_at
from headway.errors import SettingError
from headway.runs.experiment import Setting
from headway.traffic.endpoint_traffic import Service
from headway.traffic.selection import LOAD, MOST, Demand, extent

MUCH = 4.0  # device-seconds per second: four times what full batches could do
LITTLE = 1 / 8  # of the load that a comparison has by itself
HALVINGS = 12  # of the distance to it, when too many requests are in the way
END = f"{MUCH:g} device-seconds per second at full batches"


@dataclass(frozen=True, slots=True)
class Reach:
    low: float
    high: float
    end: str  # why not higher, in words


def reach(job: Job, services: list[Service]) -> Reach:
    """job.setting: `rate` or `load`. SettingError where there is no rate to turn."""
    if not services:
        return Reach(LOAD * LITTLE, MUCH, END)
    if all(each.rate for each in services):
        raise SettingError(
            "every lane has a rate of its own, so there is none to turn: give one of them a weight"
        )
    asked = asked_at(replace(job.asked, rate=0.0), "load", LOAD)
    setting = staged(asked, job.calibration, services)
    own = sum(each.rate for each in services)
    rate = setting.work.rate
    low, high = own + (rate - own) * LITTLE, own + (rate - own) * MUCH / LOAD
    if job.setting == "load":
        low, high = LOAD * LITTLE, MUCH
    if _goes(high, job, setting, services):
        return Reach(low, high, END)
    if not _goes(low, job, setting, services):
        raise SettingError(
            f"in {job.asked.seconds:g} s there are more than {MOST:,} requests at any rate: "
            "take fewer --seconds"
        )
    return Reach(low, _furthest(low, high, job, setting, services), f"more than {MOST:,} requests")


def _furthest(
    low: float, high: float, job: Job, setting: Setting, services: list[Service]
) -> float:
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _goes(middle, job, setting, services) else (low, middle)
    return low


def _goes(value: float, job: Job, setting: Setting, services: list[Service]) -> bool:
    """Whether the requests are not too many: those of processes that are drawn for so long."""
    demand, span = Demand(**{job.setting: value}), round(job.asked.seconds * 1e9)
    price, seed, context = setting.yardstick.price, job.asked.seed, setting.rig.context
    made = extent(services, demand, price, span, seed, context)
    return sum(each.count for each in made.portions.values()) <= MOST
