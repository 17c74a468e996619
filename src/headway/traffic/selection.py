"""How much of each endpoint's traffic is offered: shares of one rate.

Which requests these are, the traces and `--seconds` say; a rate or a load only says how fast they
come. Else a rate a little higher would take in what lies behind a trace's next pause, and press
all that came before it together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, takewhile
from typing import Any

from headway.costing.token_cost import Ask, Price, cut
from headway.errors import SettingError
from headway.traffic.endpoint_traffic import Recorded, Service
from headway.traffic.workload import raised

# Below everybody's overload: above it every queue grows, whatever the strategy, and says nothing.
LOAD = 0.12
SAMPLE = 512  # requests of an endpoint, from which its mean cost is taken
MOST = 50_000  # requests of one run
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Demand:
    """Of all endpoints together; one of the two."""

    rate: float = 0.0  # requests per second
    load: float = 0.0  # device-seconds per second at full batches, by the price


@dataclass(frozen=True, slots=True)
class Portion:
    """Of one endpoint's traffic."""

    count: float  # requests, on average where they are drawn
    within: int  # nanoseconds of the run that they fill
    span: int = 0  # nanoseconds of the trace that they are; 0: until its next arrival


@dataclass(frozen=True, slots=True)
class Extent:
    """Which requests there are, and how fast they come."""

    portions: Mapping[str, Portion]  # by endpoint
    window: int  # nanoseconds in which all arrivals fall


@dataclass(frozen=True, slots=True)
class Offer:
    asks: list[Ask]  # by arrival
    about: dict[str, dict[str, Any]]  # by endpoint: what was taken, and how it was stretched


def typical(services: Sequence[Service], seed: int, context: int) -> list[Ask]:
    """The first requests of each endpoint, in turn: what the machine is measured with."""
    each = [
        list(islice(service.source.asks(service.name, seed, context), SAMPLE))
        for service in services
    ]
    longest = max(map(len, each))
    return [asks[at] for at in range(longest) for asks in each if at < len(asks)]


def extent(
    services: Sequence[Service],
    demand: Demand,
    price: Price,
    span: int,
    seed: int,
    context: int,
) -> Extent:
    """span: nanoseconds. With a rate the requests are those of the traces' first so many; with a
    load, those that take so long at LOAD; of lanes that are all drawn, those of so long a run."""
    rates = _rates(services, demand, price, seed, context)
    weighted = [each for each in services if not each.rate and each.weight]
    left = sum(rates[each.name] for each in weighted)
    traces = {each.name: _times(each, seed, context) for each in weighted if each.is_recorded}
    shares = {each.name: rates[each.name] / left for each in weighted}
    recorded = sum(shares[name] for name in traces)
    if demand.load and weighted:
        costs = _costs(services, price, seed, context)
        count = LOAD * span / 1e9 / sum(share * costs[name] for name, share in shares.items())
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
    portions = {each.name: Portion(rates[each.name] * span / 1e9, span) for each in services}
    for name, share in shares.items():
        times = traces.get(name, [])
        is_prefix = not demand.load and round(share * count) == _until(times, span) > 0
        whole = min(span, times[-1] + 1) if is_prefix else 0
        portions[name] = Portion(share * count, window, whole)
    return Extent(portions, window)


def within(
    services: Sequence[Service],
    demand: Demand,
    price: Price,
    window: int,
    seed: int,
    context: int,
) -> Extent:
    """As many requests as come in a window that is given, in nanoseconds."""
    rates = _rates(services, demand, price, seed, context)
    return Extent({name: Portion(rates[name] * window / 1e9, window) for name in rates}, window)


def offer(services: Sequence[Service], taken: Extent, seed: int, context: int) -> Offer:
    """SettingError if that is too many, or has no rate."""
    asks, about = list[Ask](), dict[str, dict[str, Any]]()
    for service in services:
        portion = taken.portions[service.name]
        if portion.count > MOST:
            raise SettingError(
                f"{service.name} would be asked {portion.count:.0f} times, and {MOST:,} are the "
                "most: lower the rate, or the seconds"
            )
        mine, times, ends = _taken(service, portion, taken.window, seed, context)
        asks += mine
        about[service.name] = {
            "time_scale": times,
            "trace_ends": ends,
            "offered": len(mine),
            "portion": asdict(portion),
            "cut_to_context": asdict(cut(mine)),
        }
        if isinstance(service.source, Recorded):
            used = times * taken.window / 1e9 if mine else 0.0
            about[service.name] |= {"trace_seconds_used": used}
            about[service.name] |= _of_trace(service.source, len(mine))
    return Offer(sorted(asks, key=lambda ask: ask.at), about)


def _of_trace(source: Recorded, count: int) -> dict[str, Any]:
    """What was done to its first so many arrivals."""
    return {
        "trace": source.name,
        "token_scale": source.scale,
        "jitter_ns": source.tick,
        "raised_to_1": raised(source.arrivals[:count], source.scale),
    }


def _times(service: Service, seed: int, context: int) -> list[int]:
    """When its trace's requests arrive, ascending."""
    return [ask.at for ask in service.source.asks(service.name, seed, context)]


def _until(times: Sequence[int], end: int) -> int:
    return sum(at < end for at in times)


def _costs(services: Sequence[Service], price: Price, seed: int, context: int) -> dict[str, float]:
    """Device-seconds of a mean request, by endpoint."""
    costs = dict[str, float]()
    for service in services:
        sample = list(islice(service.source.asks(service.name, seed, context), SAMPLE))
        costs[service.name] = price.of(sample) / len(sample) / 1e9
    return costs


def _rates(
    services: Sequence[Service], demand: Demand, price: Price, seed: int, context: int
) -> dict[str, float]:
    """Requests per second: a service's own, or its share by weight of what is left."""
    rates = {each.name: each.rate for each in services if each.rate}
    weights = {each.name: each.weight for each in services if not each.rate}
    if not weights:
        return rates
    whole = sum(weights.values())
    if not whole:
        raise SettingError("the weights of the lanes sum to 0: nobody would ask")
    left = demand.rate - sum(rates.values())
    if demand.load:
        costs = _costs(services, price, seed, context)
        mean = sum(weight * costs[name] for name, weight in weights.items()) / whole
        left = (demand.load - sum(rate * costs[name] for name, rate in rates.items())) / mean
    if left <= 0:
        raise SettingError("the lanes' own rates leave nothing for those with a weight")
    return rates | {name: left * weight / whole for name, weight in weights.items()}


def _taken(
    service: Service, portion: Portion, window: int, seed: int, context: int
) -> tuple[list[Ask], float, bool]:
    """Its requests, seconds of its trace per second of the run, and whether that is all of it."""
    count, filled = portion.count, portion.within
    if not count:
        return [], 1.0, False
    asks = service.source.asks(service.name, seed, context)
    if service.is_backlog:
        number = max(1, round(count * window / filled))
        return [replace(ask, at=0) for ask in islice(asks, number)], 1.0, False
    if not isinstance(service.source, Recorded):
        end = count * window / filled  # of a process that has one arrival a second
        drawn = takewhile(lambda ask: ask.at < end * 1e9, asks)
        timed = [replace(ask, at=int(ask.at * filled / 1e9 / count)) for ask in drawn]
        return timed, 1.0, False
    recorded = list(asks)
    if recorded[0].at == recorded[-1].at:
        raise SettingError(
            f"{service.name}: all requests of {service.source.name} ({len(recorded)}) arrive at "
            "one moment, so there is no rate to scale; `arrivals: at-once` in --lanes is for that"
        )
    wanted = max(1, round(count))
    whole = recorded[-1].at + 1
    span = portion.span or (whole if wanted >= len(recorded) else recorded[wanted].at) or 1
    kept = recorded[:wanted] if filled == window else recorded
    timed = [replace(ask, at=ask.at * filled // span) for ask in kept]
    chosen = [ask for ask in timed if ask.at < window]
    return chosen, span / filled, len(chosen) == len(recorded)
