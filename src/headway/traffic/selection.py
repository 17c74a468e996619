"""Which requests of each endpoint are offered, and how fast they come.

The traces and `--seconds` determine the requests; a rate or a load determines only how fast they
come. Otherwise a slightly higher rate would reach past the trace's next pause, and compress all
that came before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, takewhile
from typing import Any

from headway.costing.request_spec import RequestSpec, truncation
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.traffic.endpoint_traffic import EndpointTraffic, RecordedTrace
from headway.traffic.token_scale import count_raised_to_one

# Below every strategy's overload: in overload every queue grows, and comparisons say nothing.
DEFAULT_LOAD = 0.12
SAMPLE_SIZE = 512  # requests of an endpoint, from which its mean cost is taken
MAX_REQUESTS = 50_000  # requests of one run
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of all endpoints together: a rate or a load."""

    rate: float = 0.0  # requests per second
    load: float = 0.0  # device-seconds per second at full batches, by the token cost


@dataclass(frozen=True, slots=True)
class LaneSelection:
    """The requests of one endpoint that are offered."""

    count: float  # requests; the expected number where they are drawn
    within: int  # nanoseconds of the run in which they come
    span: int = 0  # nanoseconds of the trace that they cover; 0: until its next arrival


@dataclass(frozen=True, slots=True)
class Selection:
    """The requests that are offered, and how fast they come."""

    portions: Mapping[str, LaneSelection]  # by endpoint
    window: int  # nanoseconds in which all arrivals fall


@dataclass(frozen=True, slots=True)
class OfferedTraffic:
    """The requests that a run is offered, and where they come from."""

    specs: list[RequestSpec]  # by arrival
    about: dict[str, dict[str, Any]]  # by endpoint: what was selected, and its time scale


def sample_requests(
    services: Sequence[EndpointTraffic], seed: int, context: int
) -> list[RequestSpec]:
    """The first requests of each endpoint, in turn, by which the machine is measured."""
    each = [
        list(islice(service.source.specs(service.name, seed, context), SAMPLE_SIZE))
        for service in services
    ]
    longest = max(map(len, each))
    return [specs[at] for at in range(longest) for specs in each if at < len(specs)]


def select_requests(
    services: Sequence[EndpointTraffic],
    demand: Demand,
    token_cost: TokenCost,
    span: int,
    seed: int,
    context: int,
) -> Selection:
    """The requests for this demand.

    span: nanoseconds. With a rate: the requests in this span of the traces. With a load: as many as
    take this span at DEFAULT_LOAD. Where all lanes are drawn: as many as come in this span.
    """
    rates = _rates(services, demand, token_cost, seed, context)
    weighted = [each for each in services if not each.rate and each.weight]
    left = sum(rates[each.name] for each in weighted)
    traces = {each.name: _times(each, seed, context) for each in weighted if each.is_recorded}
    shares = {each.name: rates[each.name] / left for each in weighted}
    recorded = sum(shares[name] for name in traces)
    if demand.load and weighted:
        costs = _costs(services, token_cost, seed, context)
        count = (
            DEFAULT_LOAD * span / 1e9 / sum(share * costs[name] for name, share in shares.items())
        )
    elif recorded:
        count = sum(_until(times, span) for times in traces.values()) / recorded
    else:
        count = left * span / 1e9
    count = min([count, *(len(times) / shares[name] for name, times in traces.items())])
    if weighted and not count:
        raise SettingError(
            f"nobody arrives in the first {span / 1e9:g} s of {' and '.join(traces)}: "
            "take more --seconds"
        )
    window = round(count / left * 1e9) if weighted else span
    portions = {each.name: LaneSelection(rates[each.name] * span / 1e9, span) for each in services}
    for name, share in shares.items():
        times = traces.get(name, [])
        is_prefix = not demand.load and round(share * count) == _until(times, span) > 0
        whole = min(span, times[-1] + 1) if is_prefix else 0
        portions[name] = LaneSelection(share * count, window, whole)
    return Selection(portions, window)


def select_in_window(
    services: Sequence[EndpointTraffic],
    demand: Demand,
    token_cost: TokenCost,
    window: int,
    seed: int,
    context: int,
) -> Selection:
    """As many requests as this demand brings in a window of so many nanoseconds."""
    rates = _rates(services, demand, token_cost, seed, context)
    return Selection(
        {name: LaneSelection(rates[name] * window / 1e9, window) for name in rates}, window
    )


def offered_traffic(
    services: Sequence[EndpointTraffic], taken: Selection, seed: int, context: int
) -> OfferedTraffic:
    """The selected requests. SettingError where they are too many, or a trace has no rate."""
    specs, about = list[RequestSpec](), dict[str, dict[str, Any]]()
    for service in services:
        portion = taken.portions[service.name]
        if portion.count > MAX_REQUESTS:
            raise SettingError(
                f"{service.name} would be asked {portion.count:.0f} times, and "
                f"{MAX_REQUESTS:,} are the most: lower the rate, or the seconds"
            )
        mine, times, ends = _taken(service, portion, taken.window, seed, context)
        specs += mine
        about[service.name] = {
            "time_scale": times,
            "trace_ends": ends,
            "offered": len(mine),
            "portion": asdict(portion),
            "cut_to_context": asdict(truncation(mine)),
        }
        if isinstance(service.source, RecordedTrace):
            used = times * taken.window / 1e9 if mine else 0.0
            about[service.name] |= {"trace_seconds_used": used}
            about[service.name] |= _of_trace(service.source, len(mine))
    return OfferedTraffic(sorted(specs, key=lambda spec: spec.at), about)


def _of_trace(source: RecordedTrace, count: int) -> dict[str, Any]:
    """How the first `count` arrivals of a trace were changed."""
    return {
        "trace": source.name,
        "token_scale": source.scale,
        "jitter_ns": source.tick,
        "raised_to_1": count_raised_to_one(source.arrivals[:count], source.scale),
    }


def _times(service: EndpointTraffic, seed: int, context: int) -> list[int]:
    """Arrival times of the trace, ascending."""
    return [spec.at for spec in service.source.specs(service.name, seed, context)]


def _until(times: Sequence[int], end: int) -> int:
    return sum(at < end for at in times)


def _costs(
    services: Sequence[EndpointTraffic], token_cost: TokenCost, seed: int, context: int
) -> dict[str, float]:
    """Device-seconds per request, by endpoint."""
    costs = dict[str, float]()
    for service in services:
        sample = list(islice(service.source.specs(service.name, seed, context), SAMPLE_SIZE))
        costs[service.name] = token_cost.of(sample) / len(sample) / 1e9
    return costs


def _rates(
    services: Sequence[EndpointTraffic],
    demand: Demand,
    token_cost: TokenCost,
    seed: int,
    context: int,
) -> dict[str, float]:
    """Requests per second by endpoint: its own rate, or its share by weight of the rest."""
    rates = {each.name: each.rate for each in services if each.rate}
    weights = {each.name: each.weight for each in services if not each.rate}
    if not weights:
        return rates
    whole = sum(weights.values())
    if not whole:
        raise SettingError("the weights of the lanes sum to 0: nobody would spec")
    left = demand.rate - sum(rates.values())
    if demand.load:
        costs = _costs(services, token_cost, seed, context)
        mean = sum(weight * costs[name] for name, weight in weights.items()) / whole
        left = (demand.load - sum(rate * costs[name] for name, rate in rates.items())) / mean
    if left <= 0:
        raise SettingError("the lanes' own rates leave nothing for those with a weight")
    return rates | {name: left * weight / whole for name, weight in weights.items()}


def _taken(
    service: EndpointTraffic, portion: LaneSelection, window: int, seed: int, context: int
) -> tuple[list[RequestSpec], float, bool]:
    """The endpoint's requests, its time scale, and whether they are the whole trace."""
    count, filled = portion.count, portion.within
    if not count:
        return [], 1.0, False
    specs = service.source.specs(service.name, seed, context)
    if service.is_backlog:
        number = max(1, round(count * window / filled))
        return [replace(spec, at=0) for spec in islice(specs, number)], 1.0, False
    if not isinstance(service.source, RecordedTrace):
        end = count * window / filled  # of a process that has one arrival a second
        drawn = takewhile(lambda spec: spec.at < end * 1e9, specs)
        timed = [replace(spec, at=int(spec.at * filled / 1e9 / count)) for spec in drawn]
        return timed, 1.0, False
    recorded = list(specs)
    if recorded[0].at == recorded[-1].at:
        raise SettingError(
            f"{service.name}: all requests of {service.source.name} ({len(recorded)}) arrive at "
            "one moment, so there is no rate to scale; `arrivals: at-once` in --lanes is for that"
        )
    wanted = max(1, round(count))
    whole = recorded[-1].at + 1
    span = portion.span or (whole if wanted >= len(recorded) else recorded[wanted].at) or 1
    kept = recorded[:wanted] if filled == window else recorded
    timed = [replace(spec, at=spec.at * filled // span) for spec in kept]
    chosen = [spec for spec in timed if spec.at < window]
    return chosen, span / filled, len(chosen) == len(recorded)
