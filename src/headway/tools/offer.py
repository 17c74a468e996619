"""How much of each endpoint's traffic is offered: shares of one rate, within one window."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any

from headway.errors import SettingError
from headway.tools.price import Ask, Price
from headway.tools.traffic import Recorded, Service
from headway.tools.workload import raised

SAMPLE = 512  # requests of an endpoint, from which its mean cost is taken
MOST = 50_000  # requests of one run


@dataclass(frozen=True, slots=True)
class Demand:
    """Of all endpoints together; one of the two."""

    rate: float = 0.0  # requests per second
    load: float = 0.0  # device-seconds per second at full batches, by the price


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


def offer(
    services: Sequence[Service],
    demand: Demand,
    price: Price,
    window: int,
    seed: int,
    context: int,
) -> Offer:
    """window: nanoseconds in which all arrivals fall. SettingError if that is too many."""
    rates = _rates(services, demand, price, seed, context)
    asks, about = list[Ask](), dict[str, dict[str, Any]]()
    for service in services:
        count = rates[service.name] * window / 1e9
        if count > MOST:
            raise SettingError(
                f"{service.name} would be asked {count:.0f} times; lower the rate, or the seconds"
            )
        mine, times, ends = _taken(service, count, window, seed, context)
        asks += mine
        about[service.name] = {"time_scale": times, "trace_ends": ends, "offered": len(mine)}
        if isinstance(service.source, Recorded):
            scales = {"token_scale": service.source.scale, "jitter_ns": service.source.tick}
            used = {"trace": service.source.name, "trace_seconds_used": times * window / 1e9}
            zeros = raised(service.source.arrivals[: len(mine)], service.source.scale)
            about[service.name] |= used | scales | {"raised_to_1": zeros}
    return Offer(sorted(asks, key=lambda ask: ask.at), about)


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
    costs = dict[str, float]()
    for service in services:
        sample = list(islice(service.source.asks(service.name, seed, context), SAMPLE))
        costs[service.name] = price.of(sample) / len(sample) / 1e9
    left = demand.rate - sum(rates.values())
    if demand.load:
        mean = sum(weight * costs[name] for name, weight in weights.items()) / whole
        left = (demand.load - sum(rate * costs[name] for name, rate in rates.items())) / mean
    if left <= 0:
        raise SettingError("the lanes' own rates leave nothing for those with a weight")
    return rates | {name: left * weight / whole for name, weight in weights.items()}


def _taken(
    service: Service, count: float, window: int, seed: int, context: int
) -> tuple[list[Ask], float, bool]:
    """Its requests, seconds of its trace per second of the run, and whether the trace ends."""
    if not count:
        return [], 1.0, False
    asks = service.source.asks(service.name, seed, context)
    if service.is_backlog:
        return [replace(ask, at=0) for ask in islice(asks, max(1, round(count)))], 1.0, False
    if not isinstance(service.source, Recorded):
        timed = (replace(ask, at=round(ask.at * window / 1e9 / count)) for ask in asks)
        return list(takewhile(lambda ask: ask.at < window, timed)), 1.0, False
    recorded = list(asks)
    wanted = max(1, round(count))
    ends = wanted > len(recorded)
    span = max(1, recorded[-1].at + 1 if wanted >= len(recorded) else recorded[wanted].at)
    chosen = [replace(ask, at=ask.at * window // span) for ask in recorded[:wanted]]
    return [ask for ask in chosen if ask.at < window], span / window, ends
