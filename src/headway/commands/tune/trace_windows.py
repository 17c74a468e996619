"""Windows of the endpoints' traffic: some to choose settings by, some to check the choice on."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from headway.errors import SettingError
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.recorded_trace import RecordedTrace

LEAST = 2  # arrivals of a trace in a window: one alone has no rate


def split_windows(
    services: Sequence[EndpointTraffic], count: int, requests: int
) -> list[list[EndpointTraffic]]:
    """Split the endpoints' traces into `count` windows, in time order; each has all endpoints.

    Each trace is cut into `count` parts with equally many arrivals. A window takes the first
    arrivals of its part, at most the endpoint's share (by weight) of `requests`. Drawn endpoints
    are the same in every window; another seed draws other requests. Raises SettingError for a
    trace that is too short.
    """
    shares = _shares(services)
    return [
        [
            _window(each, at, count, max(LEAST, ceil(requests * shares[each.name])))
            for each in services
        ]
        for at in range(count)
    ]


def _shares(services: Sequence[EndpointTraffic]) -> dict[str, float]:
    """Each endpoint's share of the requests, by weight; 1 for an endpoint with its own rate."""
    whole = sum(each.weight for each in services if not each.rate) or 1.0
    return {each.name: 1.0 if each.rate else each.weight / whole for each in services}


def _window(service: EndpointTraffic, at: int, count: int, most: int) -> EndpointTraffic:
    source = service.source
    if not isinstance(source, RecordedTrace):
        return service
    length = len(source.arrivals)
    if length < LEAST * count:
        raise SettingError(
            f"the trace {source.name} has {length} arrivals: {count} windows need at least "
            f"{LEAST * count}"
        )
    begin, end = length * at // count, length * (at + 1) // count
    arrivals = source.arrivals[begin : min(end, begin + most)]
    zero = arrivals[0].at
    moved = [replace(each, at=each.at - zero) for each in arrivals]
    return replace(service, source=replace(source, arrivals=moved))
