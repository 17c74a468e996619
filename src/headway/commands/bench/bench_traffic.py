"""The traffic of a benchmark: endpoints from options or a file, and their requests."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.commands.bench.options import ANSWER, PROMPT, BenchOptions
from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.costing.request_spec import RequestSpec, truncation
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.runs.remote import calling
from headway.runs.remote.calling import Calling, read_calling
from headway.traffic.arrival_process import ArrivalProcess, Lengths
from headway.traffic.endpoint import Endpoint
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.from_yaml import KEYS, endpoint_of, endpoints_from_traces, read_cv, read_lanes
from headway.traffic.offered_traffic import offered_traffic
from headway.traffic.selection import (
    Demand,
    Selection,
    select_at_own_pace,
    select_requests,
)
from headway.traffic.workload import WARM_UP
from headway.yaml_values import known, number

UNKNOWN_CONTEXT = 1 << 20  # tokens, if no server states its context
BLOCK = 16  # no two prompts share their first BLOCK numbers
# An endpoint's keys for compare that mean nothing to a server's client.
SERVERS_OWN = {
    **dict.fromkeys(("window", "priority"), "the server's own settings decide that"),
    **dict.fromkeys(
        ("slots", "blocks", "step_tokens", "chunk", "max_waiting", "max_waiting_tokens"),
        "the server's own settings decide that",
    ),
    "tenants": "give each tenant a lane of its own, with its key in headers",
}


@dataclass(frozen=True, slots=True)
class BenchLane:
    """An endpoint, the source of its requests, and how its callers behave."""

    traffic: EndpointTraffic
    calling: Calling = field(default_factory=Calling)


@dataclass(frozen=True, slots=True)
class BenchWork:
    """The requests that every server is offered. Prompts are cut from each server's own text."""

    specs: tuple[RequestSpec, ...]  # by arrival
    window: int  # nanoseconds in which all requests arrive
    warm_up: int  # nanoseconds that the figures leave out
    about: Mapping[str, Any]  # facts for the report

    @property
    def rate(self) -> float:
        """Requests per second, over all lanes."""
        return len(self.specs) * 1e9 / self.window

    def at_rate(self, rate: float) -> "BenchWork":
        """The same requests, faster or slower. The same requests fall into the warm-up."""
        factor = self.rate / rate
        specs = tuple(replace(spec, at=round(spec.at * factor)) for spec in self.specs)
        lanes = {name: _stretched(each, factor) for name, each in self.about["lanes"].items()}
        about = {**self.about, "requests_per_second": rate, "lanes": lanes}
        return BenchWork(specs, round(self.window * factor), round(self.warm_up * factor), about)

    def count(self, lane: str) -> int:
        """How many requests this lane has."""
        return sum(spec.lane == lane for spec in self.specs)


def _stretched(lane: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The facts about a lane whose requests come in `factor` times the time."""
    scale = lane["time_scale"] / factor if "trace" in lane else lane["time_scale"]
    within = round(lane["portion"]["within"] * factor)
    return {**lane, "time_scale": scale, "portion": {**lane["portion"], "within": within}}


def lanes_at_rate(
    lanes: Sequence[BenchLane], options: BenchOptions, rate: float
) -> list[BenchLane]:
    """The lanes for the report of a run at this rate, which --poisson and --gamma lanes state."""
    if options.poisson:
        return _lanes(replace(options, poisson=float(f"{rate:.3g}")))
    if options.gamma:
        _, cv = options.gamma.split(",")
        return _lanes(replace(options, gamma=f"{rate:.3g},{cv}"))
    return list(lanes)


def bench_lanes(options: BenchOptions) -> list[BenchLane]:
    """The endpoints that the options name. Raises SettingError if options contradict each other."""
    given = {
        "--trace": bool(options.traces),
        "--lanes": options.lanes is not None,
        "--poisson": options.poisson > 0,
        "--gamma": bool(options.gamma),
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) != 1:
        said = f"not {' and '.join(named)}" if named else "for instance --poisson 2"
        raise SettingError(f"say who asks, by one of {', '.join(given)}: {said}")
    if (options.prompt or options.answer) and (options.traces or options.lanes):
        raise SettingError("--prompt and --answer are of --poisson and --gamma")
    lanes = _lanes(options)
    if options.token_scale is not None and not any(lane.traffic.is_recorded for lane in lanes):
        raise SettingError("--token-scale is of traces, and there is none")
    return lanes


def _lanes(options: BenchOptions) -> list[BenchLane]:
    scale = 1.0 if options.token_scale is None else options.token_scale
    if options.lanes is not None:
        if options.ttft or options.tpot or options.e2e:
            raise SettingError("--ttft, --tpot and --e2e: the file of --lanes has the budgets")
        return _from_file(options.lanes, scale)
    budget = Budget(
        **{
            name: round(limit * 1e6)
            for name in ("ttft", "tpot", "e2e")
            if (limit := getattr(options, name))
        }
    )
    if options.traces:
        services = endpoints_from_traces(options.traces, scale)
    else:
        services = [_process(options)]
    return [BenchLane(replace(each, endpoint=_limited(each.endpoint, budget))) for each in services]


def _limited(endpoint: Endpoint, budget: Budget) -> Endpoint:
    return replace(endpoint, ttft=0.0, tpot=0.0, e2e=0.0, fixed=budget)


def _process(options: BenchOptions) -> EndpointTraffic:
    rate, cv, name = options.poisson, 1.0, "poisson"
    if options.gamma:
        name, parts = "gamma", options.gamma.split(",")
        try:
            rate, cv = (number(float(each), "--gamma") for each in parts)
        except ValueError as error:
            raise SettingError(f"--gamma is RATE,CV, not {options.gamma}") from error
        cv = read_cv(cv, "--gamma: cv")
    if not rate:
        raise SettingError(f"--{name}: a rate is more than 0")
    prompt = _lengths(options.prompt or PROMPT, "--prompt")
    answer = _lengths(options.answer or ANSWER, "--answer")
    source = f"synthetic: {name}, {rate:g} requests / s" + (f", cv {cv:g}" if cv != 1 else "")
    endpoint = Endpoint(name, "synthetic requests", source, 0)
    return EndpointTraffic(endpoint, ArrivalProcess(prompt, answer, cv), rate=rate)


def _lengths(text: str, where: str) -> Lengths:
    least, _, most = text.partition("-")
    ends = (least, most or least)
    if not all(each.isascii() and each.isdigit() for each in ends) or not int(least) > 0:
        raise SettingError(f"{where} is tokens, such as 128 or 16-48, not {text}")
    if int(ends[0]) > int(ends[1]):
        raise SettingError(f"{where}: {ends[0]} is more than {ends[1]}")
    return Lengths(int(ends[0]), int(ends[1]))


def _from_file(path: Path, scale: float) -> list[BenchLane]:
    lanes = []
    for priority, (name, fields) in enumerate(read_lanes(path).items()):
        where = f"{path.name}: {name}"
        for key in fields:
            if key in SERVERS_OWN:
                raise SettingError(f"{where}: {key}: {SERVERS_OWN[key]}")
        known(fields, (*KEYS, *calling.KEYS), where)
        rest = {key: each for key, each in fields.items() if key not in calling.KEYS}
        traffic = endpoint_of(name, rest, path, (priority, scale))
        endpoint = traffic.endpoint
        if endpoint.fixed.queue != NEVER:
            raise SettingError(f"{where}: budget: a client cannot see the queue; say ttft")
        if endpoint.ttft or endpoint.tpot or endpoint.e2e:
            raise SettingError(f"{where}: budget: say milliseconds, not multiples of unloaded")
        mine = read_calling(fields, where)
        if not mine.sessions.is_single:
            if not isinstance(traffic.source, ArrivalProcess):
                raise SettingError(f"{where}: sessions need arrivals; a trace has its own requests")
            said = f"{endpoint.source}; {mine.sessions.words}"
            arrivals = replace(traffic.source, prefix=mine.sessions.prefix)
            traffic = replace(traffic, endpoint=replace(endpoint, source=said), source=arrivals)
        lanes.append(BenchLane(traffic, mine))
    return lanes


def bench_work(lanes: Sequence[BenchLane], options: BenchOptions, context: int) -> BenchWork:
    """The requests of all lanes. context: tokens that a request may have; 0: unknown.

    Raises SettingError if there would be no requests, or too many.
    """
    span, context = round(options.seconds * 1e9), context or UNKNOWN_CONTEXT
    for lane in lanes:
        if (prefix := lane.calling.sessions.prefix) > context - 2:
            raise SettingError(
                f"{lane.traffic.name}: sessions: a prefix of {prefix} tokens leaves no room for a "
                f"prompt and an answer in the {context:,} that a request may have"
            )
    services = [lane.traffic for lane in lanes]
    taken = _selected(services, options, span, context)
    offered = offered_traffic(services, taken, options.seed, context)
    warm_up = round(taken.window * WARM_UP)
    if options.warm_up is not None:
        warm_up = round(options.warm_up * 1e9)
    if not any(spec.at >= warm_up for spec in offered.specs):
        raise SettingError(
            f"all {len(offered.specs)} requests arrive in the warm-up of {warm_up / 1e9:.3g} s, "
            "which is not counted: take more --seconds, or say --warm-up 0"
        )
    talking = {lane.traffic.name for lane in lanes if lane.calling.sessions.most > 1}
    about = {
        "requests": len(offered.specs),
        "sessions": sum(spec.lane in talking for spec in offered.specs),  # begun by these
        "requests_per_second": len(offered.specs) * 1e9 / taken.window,
        "cut_to_context": asdict(truncation(offered.specs)),
        "lanes": {
            name: {**each, "sessions": name in talking} for name, each in offered.about.items()
        },
    }
    return BenchWork(tuple(offered.specs), taken.window, warm_up, about)


def _selected(
    services: Sequence[EndpointTraffic], options: BenchOptions, span: int, context: int
) -> Selection:
    """Which requests of the endpoints are offered: at --rate, or at the traces' own pace."""
    if options.rate and options.speed != 1:
        raise SettingError("say --rate or --speed, not both")
    free = [each for each in services if not each.rate]
    if options.rate or not free:
        if options.rate and not free:
            raise SettingError("--rate: the lanes have rates of their own")
        if options.speed != 1:
            raise SettingError("--speed is of traces that go at their own pace")
        demand, free_cost = Demand(options.rate), TokenCost(0, 0)
        return select_requests(services, demand, free_cost, span, options.seed, context)
    if drawn := [each.name for each in free if not each.is_recorded]:
        raise SettingError(f"{', '.join(drawn)}: say --rate, or a rate of its own in the file")
    return select_at_own_pace(services, options.speed, span, options.seed)
