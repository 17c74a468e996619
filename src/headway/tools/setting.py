"""The circumstances of a comparison: machine, budgets and traffic, the same for all strategies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.core.lane import Lane
from headway.core.request import NEVER
from headway.tools.endpoint import COMPLETION, ENDPOINTS, SUPPORT, Endpoint
from headway.tools.machine import Neighbours
from headway.tools.offer import Demand, offer, typical
from headway.tools.registry import Site
from headway.tools.rig import Rig
from headway.tools.trace import shipped
from headway.tools.traffic import Service
from headway.tools.workload import (
    TOKEN_SCALE,
    VOICE_SAMPLE,
    Prompts,
    Workload,
    build,
    merged,
    voice,
    worded,
)
from headway.tools.yardstick import Yardstick, measure

SHIPPED = "azure2023-code and azure2023-conv, from second 1080 of each file on"


@dataclass(frozen=True, slots=True)
class Setting:
    rig: Rig
    seed: int
    endpoints: tuple[Endpoint, ...]
    yardstick: Yardstick
    work: Workload
    about: Mapping[str, Any]  # the traffic, for the report
    windows: Mapping[str, int]  # that the user has set: nanoseconds, by lane
    spoilt: float  # cores at work for others while the machine was measured

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(each.lane(self.yardstick.unloaded) for each in self.endpoints)

    @property
    def site(self) -> Site:
        prompts = sorted(len(request.prompt) for request in self.work.requests)
        return Site(self.lanes, self.yardstick.price, self.rig.context, prompts, dict(self.windows))


def demo_setting(rig: Rig, window: int, seed: int, load: float) -> Setting:
    """The demo's four endpoints on the traces that ship with the package."""
    traces = {COMPLETION.name: shipped("azure2023-code"), SUPPORT.name: shipped("azure2023-conv")}
    recorded, others = merged(traces, rig.context), Neighbours()
    yardstick = measure(rig, ENDPOINTS, recorded, seed, voice(1, VOICE_SAMPLE, seed))
    spoilt = others.cores()
    prompts = Prompts(rig.text, rig.block_size, seed)
    work = build(recorded, prompts, yardstick.price, window, load)
    about = {
        "trace": SHIPPED,
        "trace_seconds_used": work.window * work.time_scale / 1e9,
        "token_scale": TOKEN_SCALE,
        "time_scale": work.time_scale,
        "trace_ends": work.trace_ends,
    }
    return Setting(rig, seed, ENDPOINTS, yardstick, work, about, {}, spoilt)


def own_setting(
    rig: Rig, services: list[Service], demand: Demand, window: int, seed: int
) -> Setting:
    """The user's endpoints."""
    endpoints, others = tuple(each.endpoint for each in services), Neighbours()
    yardstick = measure(rig, endpoints, typical(services, seed, rig.context), seed)
    spoilt = others.cores()
    offered = offer(services, demand, yardstick.price, window, seed, rig.context)
    work = Workload(
        requests=worded(offered.asks, Prompts(rig.text, rig.block_size, seed)),
        window=window,
        time_scale=1.0,
        load=yardstick.price.of(offered.asks) / window,
        trace_ends=any(each["trace_ends"] for each in offered.about.values()),
    )
    windows = {each.name: each.window for each in services if each.window != NEVER}
    about = {"lanes": offered.about}
    return Setting(rig, seed, endpoints, yardstick, work, about, windows, spoilt)
