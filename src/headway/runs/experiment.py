"""What a comparison keeps the same for all strategies: machine, budgets and traffic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headway.core.lane import Lane
from headway.costing.machine import Neighbours
from headway.costing.request_spec import RequestSpec, truncation
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.runs.machine_speed import MachineSpeed, measure_speed
from headway.runs.testbed import Testbed
from headway.strategies.strategy import Strategy
from headway.strategies.strategy_inputs import StrategyInputs
from headway.strategies.window import Window
from headway.traffic.demo_workload import (
    VOICE_SAMPLE,
    build_demo_workload,
    merge_traces,
    voice_requests,
)
from headway.traffic.endpoint import COMPLETION, ENDPOINTS, SUPPORT, Endpoint
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.offered_traffic import OfferedTraffic, offered_traffic
from headway.traffic.prompts import Prompts
from headway.traffic.selection import (
    DEFAULT_LOAD,
    Demand,
    Selection,
    sample_requests,
    select_requests,
)
from headway.traffic.token_scale import TOKEN_SCALE
from headway.traffic.trace import read_shipped_trace
from headway.traffic.workload import Workload, supersede_keys, with_prompts

SHIPPED = "azure2023-code and azure2023-conv, from second 1080 of each file on"
LONGEST = 1e18  # nanoseconds in which a run's requests arrive


@dataclass(frozen=True, slots=True)
class Experiment:
    """What every run of a comparison shares: the testbed, endpoints, workload and machine speed."""

    testbed: Testbed
    seed: int
    endpoints: tuple[Endpoint, ...]
    speed: MachineSpeed
    work: Workload
    about: Mapping[str, Any]  # facts about the traffic, for the report
    windows: Mapping[str, Window]  # the windows that the user has set, by lane
    cores_taken: float  # cores that other processes used while the machine was measured

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(each.lane(self.speed.unloaded) for each in self.endpoints)

    def check(self, strategies: Iterable[Strategy]) -> None:
        """Raise SettingError, before anything is served, if a strategy cannot run here."""
        for each in strategies:
            try:
                self.testbed.settings(each.policies, self.lanes)
            except SettingError as error:
                raise SettingError(f"the strategy {each.name}: {error}") from error

    def counted(self, least: int = 0) -> dict[str, int]:
        """The number of requests that count, by lane: after the warm-up, or in a starting backlog.

        least: tokens to generate; requests with fewer are left out.
        """
        warm_up = self.work.warm_up
        later = {each.lane for each in self.work.requests if each.arrived}
        counts = {each.name: 0 for each in self.endpoints}
        for each in self.work.requests:
            counts[each.lane] += each.max_tokens >= least and (
                each.arrived >= warm_up or each.lane not in later
            )
        return counts

    @property
    def strategy_inputs(self) -> StrategyInputs:
        """What strategies are built from: lanes, costs, prompt lengths, windows and slots."""
        prompts = sorted(len(request.prompt) for request in self.work.requests)
        token_cost, testbed, windows = self.speed.token_cost, self.testbed, dict(self.windows)
        full = self.speed.full
        return StrategyInputs(
            self.lanes, token_cost, testbed.context, prompts, windows, testbed.slots, full
        )


def demo_experiment(
    testbed: Testbed,
    span: int,
    seed: int,
    load: float,
    token_cost: TokenCost | None = None,
    speed: MachineSpeed | None = None,
) -> Experiment:
    """The demo's four endpoints on the traces that ship with the package.

    span: nanoseconds that the requests take at DEFAULT_LOAD. Another load offers the same requests
    in more or less time. token_cost: decides how many requests make the load; None: as measured.
    speed: the testbed's, if it was measured for the same endpoints and seed; None: measure it.
    """
    if not (window := span * DEFAULT_LOAD / load) < LONGEST:
        raise SettingError(f"a load of {load:g} is too low: its requests would take years")
    traces = {
        COMPLETION.name: read_shipped_trace("azure2023-code"),
        SUPPORT.name: read_shipped_trace("azure2023-conv"),
    }
    recorded, cores_taken = merge_traces(traces, testbed.context), 0.0
    if speed is None:
        others, spoken = Neighbours(), voice_requests(1, VOICE_SAMPLE, seed)
        speed = measure_speed(testbed, ENDPOINTS, recorded, seed, spoken)
        cores_taken = others.cores()
    prompts = Prompts(testbed.text, testbed.block_size, seed)
    price = token_cost or speed.token_cost
    work = build_demo_workload(recorded, prompts, price, max(1, round(window)), load)
    specs = [RequestSpec(0, each.lane, len(each.prompt), each.max_tokens) for each in work.requests]
    work = replace(work, load=speed.token_cost.of(specs) / window)
    about = {
        **_offered(work),
        "trace": SHIPPED,
        "trace_seconds_used": work.window * work.time_scale / 1e9,
        "token_scale": TOKEN_SCALE,
        "time_scale": work.time_scale,
        "trace_ends": work.trace_ends,
    }
    return Experiment(testbed, seed, ENDPOINTS, speed, work, about, {}, cores_taken)


def custom_experiment(
    testbed: Testbed,
    services: list[EndpointTraffic],
    demand: Demand,
    span: int,
    seed: int,
    taken: Selection | None = None,
    speed: MachineSpeed | None = None,
) -> Experiment:
    """The user's endpoints. span: nanoseconds, as select_requests takes it. taken: the requests to
    offer, if already selected; span then does not matter. speed: as for demo_experiment."""
    endpoints, cores_taken = tuple(each.endpoint for each in services), 0.0
    if speed is None:
        others, sample = Neighbours(), sample_requests(services, seed, testbed.context)
        speed = measure_speed(testbed, endpoints, sample, seed)
        cores_taken = others.cores()
    token_cost = speed.token_cost
    taken = taken or select_requests(services, demand, token_cost, span, seed, testbed.context)
    work, offered = custom_workload(testbed, services, taken, seed, token_cost)
    windows = {each.name: each.window for each in services if each.window != Window()}
    about = {**_offered(work), "lanes": offered.about}
    return Experiment(testbed, seed, endpoints, speed, work, about, windows, cores_taken)


def custom_workload(
    testbed: Testbed,
    services: Sequence[EndpointTraffic],
    taken: Selection,
    seed: int,
    token_cost: TokenCost,
) -> tuple[Workload, OfferedTraffic]:
    """The selected requests of the user's endpoints with prompts, and where they come from.

    Raises SettingError if they are too many, or if a trace has no rate.
    """
    offered = offered_traffic(services, taken, seed, testbed.context)
    work = Workload(
        requests=with_prompts(offered.specs, Prompts(testbed.text, testbed.block_size, seed)),
        window=taken.window,
        time_scale=1.0,
        load=token_cost.of(offered.specs) / taken.window,
        trace_ends=any(each["trace_ends"] for each in offered.about.values()),
        cut=truncation(offered.specs),
        keys=supersede_keys(offered.specs),
    )
    return work, offered


def _offered(work: Workload) -> dict[str, Any]:
    """The facts about the offered requests, as the report has them."""
    return {
        "requests": len(work.requests),
        "requests_per_second": work.rate,
        "cut_to_context": asdict(work.cut),
    }
