"""The circumstances of a comparison: machine, budgets and traffic, the same for all strategies."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headway.core.lane import Budget, Lane
from headway.core.request import NEVER
from headway.costing.machine import Neighbours
from headway.costing.token_cost import Ask, Price, cut
from headway.runs.machine_speed import Yardstick, measure
from headway.runs.testbed import Rig
from headway.strategies.registry import Site
from headway.traffic.endpoint import COMPLETION, ENDPOINTS, SUPPORT, Endpoint
from headway.traffic.endpoint_traffic import Service
from headway.traffic.selection import LOAD, Demand, Extent, extent, offer, typical
from headway.traffic.trace import shipped
from headway.traffic.workload import (
    TOKEN_SCALE,
    VOICE_SAMPLE,
    Prompts,
    Workload,
    build,
    merged,
    voice,
    worded,
)

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

    def counted(self, least: int = 0) -> dict[str, int]:
        """Requests that the figures will speak of, by lane: those of so many tokens or more."""
        warm_up = self.work.warm_up
        free = {lane.name for lane in self.lanes if lane.budget == Budget()}
        counts = {each.name: 0 for each in self.endpoints}
        for each in self.work.requests:
            counts[each.lane] += each.max_tokens >= least and (
                each.arrived >= warm_up or (not each.arrived and each.lane in free)
            )
        return counts

    @property
    def site(self) -> Site:
        prompts = sorted(len(request.prompt) for request in self.work.requests)
        price, rig, windows = self.yardstick.price, self.rig, dict(self.windows)
        full = self.yardstick.full
        return Site(self.lanes, price, rig.context, prompts, windows, rig.slots, full)


def demo_setting(
    rig: Rig, span: int, seed: int, load: float, price: Price | None = None
) -> Setting:
    """The demo's four endpoints on the traces that ship with the package.

    span: nanoseconds that the requests take at LOAD; another load has the same ones in more time
    or in less. price: by which they are counted out; None: as measured.
    """
    traces = {COMPLETION.name: shipped("azure2023-code"), SUPPORT.name: shipped("azure2023-conv")}
    recorded, others = merged(traces, rig.context), Neighbours()
    yardstick = measure(rig, ENDPOINTS, recorded, seed, voice(1, VOICE_SAMPLE, seed))
    spoilt = others.cores()
    prompts = Prompts(rig.text, rig.block_size, seed)
    window = round(span * LOAD / load)
    work = build(recorded, prompts, price or yardstick.price, window, load)
    asks = [Ask(0, each.lane, len(each.prompt), each.max_tokens) for each in work.requests]
    work = replace(work, load=yardstick.price.of(asks) / window)
    about = {
        **_offered(work),
        "trace": SHIPPED,
        "trace_seconds_used": work.window * work.time_scale / 1e9,
        "token_scale": TOKEN_SCALE,
        "time_scale": work.time_scale,
        "trace_ends": work.trace_ends,
    }
    return Setting(rig, seed, ENDPOINTS, yardstick, work, about, {}, spoilt)


def own_setting(
    rig: Rig,
    services: list[Service],
    demand: Demand,
    span: int,
    seed: int,
    taken: Extent | None = None,
) -> Setting:
    """The user's endpoints. span: nanoseconds, as `extent` has it, unless what is to be taken is
    given already."""
    endpoints, others = tuple(each.endpoint for each in services), Neighbours()
    yardstick = measure(rig, endpoints, typical(services, seed, rig.context), seed)
    spoilt = others.cores()
    price = yardstick.price
    taken = taken or extent(services, demand, price, span, seed, rig.context)
    offered = offer(services, taken, seed, rig.context)
    work = Workload(
        requests=worded(offered.asks, Prompts(rig.text, rig.block_size, seed)),
        window=taken.window,
        time_scale=1.0,
        load=price.of(offered.asks) / taken.window,
        trace_ends=any(each["trace_ends"] for each in offered.about.values()),
        cut=cut(offered.asks),
    )
    windows = {each.name: each.window for each in services if each.window != NEVER}
    about = {**_offered(work), "lanes": offered.about}
    return Setting(rig, seed, endpoints, yardstick, work, about, windows, spoilt)


def _offered(work: Workload) -> dict[str, Any]:
    """As the report has it."""
    return {
        "requests": len(work.requests),
        "requests_per_second": work.rate,
        "cut_to_context": asdict(work.cut),
    }
