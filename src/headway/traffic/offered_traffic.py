"""The requests that a run is offered, at their times (OfferedTraffic)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, takewhile
from typing import Any

from headway.costing.request_spec import RequestSpec, truncation
from headway.errors import SettingError
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.selection import MAX_REQUESTS, LaneSelection, Selection
from headway.traffic.token_scale import count_raised_to_one

MOST_DRAWN = 2 * MAX_REQUESTS  # requests of one endpoint; a large cv may draw more than expected


@dataclass(frozen=True, slots=True)
class OfferedTraffic:
    """The requests that a run is offered, and where they come from."""

    specs: list[RequestSpec]  # by arrival
    about: dict[str, dict[str, Any]]  # by endpoint: what was selected, and its time scale


def offered_traffic(
    services: Sequence[EndpointTraffic], taken: Selection, seed: int, context: int
) -> OfferedTraffic:
    """The selected requests. SettingError if they are too many, or if a trace has no rate."""
    specs, about = list[RequestSpec](), dict[str, dict[str, Any]]()
    for service in services:
        portion = taken.portions[service.name]
        if portion.count > MAX_REQUESTS:
            raise SettingError(
                f"{service.name} would be asked {portion.count:.0f} times, and "
                f"{MAX_REQUESTS:,} are the most: lower the rate, or the seconds"
            )
        mine, times, ends = _taken(service, portion, taken.window, seed, context)
        specs += service.tenants.dealt(mine, f"{seed} {service.name}")
        about[service.name] = {
            "time_scale": times,
            "trace_ends": ends,
            "offered": len(mine),
            "portion": asdict(portion),
            "cut_to_context": asdict(truncation(mine)),
        }
        if isinstance(service.source, RecordedTrace):
            # A trace may end before the window.
            used = min(times * taken.window, service.source.duration) / 1e9 if mine else 0.0
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
        end = count * window / filled  # in seconds of the process: it has one arrival a second
        drawn = list(islice(takewhile(lambda spec: spec.at < end * 1e9, specs), MOST_DRAWN + 1))
        if len(drawn) > MOST_DRAWN:
            raise SettingError(
                f"{service.name} would be asked more than {MOST_DRAWN:,} times, because the cv of "
                f"its arrivals is {service.source.cv:g}: lower it"
            )
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
    if filled == window:  # the kept part of a divided burst would land on the window's end
        chosen = [replace(spec, at=min(spec.at, window - 1)) for spec in timed]
    else:
        chosen = [spec for spec in timed if spec.at < window]
    return chosen, span / filled, len(chosen) == len(recorded)
