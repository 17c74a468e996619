"""Between which rates, or loads, a capacity can be looked for with the traffic at hand."""

from dataclasses import dataclass, replace

from headway.errors import SettingError
from headway.tools.compare import LOAD
from headway.tools.dial import asked_at
from headway.tools.offer import MOST, Demand, offer
from headway.tools.point import Job
from headway.tools.setting import Setting
from headway.tools.stage import staged
from headway.tools.trace import shipped
from headway.tools.traffic import Service
from headway.tools.workload import LOAD as DEMO_LOAD
from headway.tools.workload import TRACE_LOAD, merged

MUCH = 4.0  # device-seconds per second: four times what full batches could do
LITTLE = 1 / 8  # of the load that a comparison has by itself
HALVINGS = 12  # of the distance to it, when the end of the traffic is looked for


@dataclass(frozen=True, slots=True)
class Reach:
    low: float
    high: float
    end: str  # why not higher, in words


def reach(job: Job, services: list[Service]) -> Reach:
    """job.setting: `rate` or `load`. SettingError where there is no rate to turn."""
    if not services:
        return _of_demo(job)
    if all(each.rate for each in services):
        raise SettingError(
            "every lane has a rate of its own, so there is none to turn: give one of them a weight"
        )
    asked = asked_at(replace(job.asked, rate=0.0), "load", LOAD)
    setting = staged(asked, job.calibration, services)
    own = sum(each.rate for each in services)
    rate = len(setting.work.requests) * 1e9 / setting.work.window
    low, high = own + (rate - own) * LITTLE, own + (rate - own) * MUCH / LOAD
    if job.setting == "load":
        low, high = LOAD * LITTLE, MUCH
    end = f"{MUCH:g} device-seconds per second at full batches"
    if _goes(high, job, setting, services):
        return Reach(low, high, end)
    if not _goes(low, job, setting, services):
        raise SettingError("the traces end before they have given any rate: take fewer --seconds")
    return Reach(low, _furthest(low, high, job, setting, services), "the traffic ends there")


def _furthest(
    low: float, high: float, job: Job, setting: Setting, services: list[Service]
) -> float:
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _goes(middle, job, setting, services) else (low, middle)
    return low


def _goes(value: float, job: Job, setting: Setting, services: list[Service]) -> bool:
    """Whether the traces are long enough for it, and the requests not too many."""
    demand = Demand(**{job.setting: value})
    window, seed = setting.work.window, job.asked.seed
    try:
        made = offer(services, demand, setting.yardstick.price, window, seed, setting.rig.context)
    except SettingError:  # more than MOST of one endpoint
        return False
    return len(made.asks) <= MOST and not any(each["trace_ends"] for each in made.about.values())


def _of_demo(job: Job) -> Reach:
    """Its load is shared out in proportion, and its traces have so much of it."""
    asked = replace(job.asked, rate=0.0, load=LOAD)
    setting = staged(asked, job.calibration, [])
    traces = {"completion": shipped("azure2023-code"), "support": shipped("azure2023-conv")}
    whole = setting.yardstick.price.of(merged(traces, setting.rig.context)) / setting.work.window
    ends = whole * DEMO_LOAD / TRACE_LOAD
    if ends < MUCH:
        return Reach(min(LOAD * LITTLE, ends / 2), 0.999 * ends, "the traces end there")
    return Reach(LOAD * LITTLE, MUCH, f"{MUCH:g} device-seconds per second at full batches")
