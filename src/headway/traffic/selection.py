"""Which requests of each endpoint are offered, and how fast they come.

The traces and `--seconds` determine the requests. A rate or a load determines only how fast they
come. Otherwise a slightly higher rate would reach past the trace's next pause, and so compress all
requests before that pause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from headway.costing.request_spec import RequestSpec
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.recorded_trace import RecordedTrace

# Low enough that no strategy is overloaded. In overload all queues grow, so comparing is useless.
DEFAULT_LOAD = 0.12
SAMPLE_SIZE = 512  # requests of an endpoint, from which its mean cost is taken
MAX_REQUESTS = 50_000  # requests of one run
LEAST_RATE = 1e-5  # requests per second; more than one a day


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of all endpoints together: a rate or a load."""

    rate: float = 0.0  # requests per second
    load: float = 0.0  # device-seconds per second at full batches, by the token cost


@dataclass(frozen=True, slots=True)
class LaneSelection:
    """Which requests of one endpoint are offered."""

    count: float  # requests; the expected number if they are drawn
    within: int  # nanoseconds of the run in which they arrive
    span: int = 0  # nanoseconds of the trace that they cover; 0: up to its next arrival


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests are offered, and how fast they come."""

    portions: Mapping[str, LaneSelection]  # by endpoint
    window: int  # nanoseconds in which all arrivals fall


def sample_requests(
    services: Sequence[EndpointTraffic], seed: int, context: int
) -> list[RequestSpec]:
    """The first requests of each endpoint, taken in turn, to measure the machine with."""
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
    """Select the requests for this demand.

    span: nanoseconds. With a rate: take the requests in this span of the traces. With a load: take
    as many as need this span at DEFAULT_LOAD. With a rate and no traces: take as many as come in
    this span. Raises SettingError.
    """
    rates = _rates(services, demand, token_cost, seed, context)
    weighted = [each for each in services if not each.rate and each.weight]
    left = sum(rates[each.name] for each in weighted)
    traces = {each.name: _times(each, seed) for each in weighted if each.is_recorded}
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
    portions = {each.name: _portion(each, rates[each.name], span, seed) for each in services}
    window = max([1, *(each.within for each in portions.values())])
    if weighted:
        window = max(1, round(count / left * 1e9))
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
    """Select as many requests as this demand brings in a window of `window` nanoseconds."""
    rates = _rates(services, demand, token_cost, seed, context)
    portions = {each.name: _portion(each, rates[each.name], window, seed) for each in services}
    return Selection(portions, window)


def select_at_own_pace(
    services: Sequence[EndpointTraffic], speed: float, span: int, seed: int
) -> Selection:
    """Select the requests of the first `span` nanoseconds of each trace, `speed` times as fast as
    they were recorded. A shorter trace ends before the others; it is not stretched.

    Endpoints with a rate of their own keep it. Raises SettingError if nobody arrives.
    """
    window, portions = max(1, round(span / speed)), dict[str, LaneSelection]()
    for each in services:
        if each.rate:
            portions[each.name] = _portion(each, each.rate, window, seed)
            continue
        times = _times(each, seed)
        covered = min(span, times[-1] + 1)
        within = max(1, round(covered / speed))
        portions[each.name] = LaneSelection(_until(times, span), within, covered)
    asked = [each for each in portions.values() if each.count]
    if not asked:
        raise SettingError(
            f"{', '.join(portions)}: no request in the first {span / 1e9:g} s; take more --seconds"
        )
    return Selection(portions, max(each.within for each in asked))


def _portion(service: EndpointTraffic, rate: float, span: int, seed: int) -> LaneSelection:
    """What comes at this rate in this span. A trace with fewer requests ends before it: stretched
    over the span, it would come at a lower rate."""
    count = rate * span / 1e9
    if service.is_recorded and count > (most := len(_times(service, seed))):
        return LaneSelection(most, round(most / rate * 1e9))
    return LaneSelection(count, span)


def _times(service: EndpointTraffic, seed: int) -> list[int]:
    """Arrival times of the trace, ascending."""
    assert isinstance(service.source, RecordedTrace)
    return list(service.source.times(service.name, seed))


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
    """Requests per second by endpoint: its own rate, or its share of the rest by weight."""
    rates = {each.name: each.rate for each in services if each.rate}
    weights = {each.name: each.weight for each in services if not each.rate}
    if not weights:
        return rates
    whole = sum(weights.values())
    if not whole:
        raise SettingError("the weights of the lanes sum to 0, so no requests would arrive")
    left = demand.rate - sum(rates.values())
    if demand.load:
        costs = _costs(services, token_cost, seed, context)
        mean = sum(weight * costs[name] for name, weight in weights.items()) / whole
        left = (demand.load - sum(rate * costs[name] for name, rate in rates.items())) / mean
    if left <= 0:
        raise SettingError("the lanes' own rates leave nothing for those with a weight")
    if left < LEAST_RATE:
        raise SettingError(
            f"the lanes with a weight would get {left:.3g} requests / s, and {LEAST_RATE:g} is the "
            "least: raise the rate or the load"
        )
    return rates | {name: left * weight / whole for name, weight in weights.items()}
