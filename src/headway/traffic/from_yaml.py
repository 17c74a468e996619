"""Endpoints and their traffic, from YAML or from trace files.

chat:
  trace: chat.csv            # or azure2023-conv, which ships; token counts are scaled down
  budget: {ttft: 6 x unloaded, tpot: 80}   # multiples of the unloaded latency, or milliseconds
  window: 30                 # ms that dynamic-lanes may hold its oldest, or {between: [5, 50]}
  weight: 3                  # its share of the arrival rate
  tenants: {acme: 9, bell: 1}  # the tenants that send its requests, and their proportions
voice:
  arrivals: {gamma: {cv: 2}}  # or poisson, or at-once
  prompt: [16, 48]           # tokens: least, most; or one number; or {mean: 200, cv: 1}
  answer: {mean: 20, cv: 0.5}
  rate: 2                    # requests per second, in place of a weight
  priority: 0
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.core.lane import Budget
from headway.errors import SettingError
from headway.strategies.window import Window, read_window
from headway.traffic import endpoint_place
from headway.traffic.arrival_process import ArrivalProcess, Lengths
from headway.traffic.endpoint import Endpoint
from headway.traffic.endpoint_place import read_place
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.tenants import read_tenants
from headway.traffic.token_scale import TOKEN_SCALE
from headway.traffic.trace import read_shipped_trace, read_trace
from headway.yaml_values import DECIMAL, known, mapping, number, read_yaml, whole

SHIPPED_TRACES = ("azure2023-code", "azure2023-conv")
KEYS = (
    *("trace", "token_scale", "arrivals", "prompt", "answer"),
    *("budget", "window", "weight", "rate", "priority", "serves", "tenants"),
    *endpoint_place.KEYS,
)
LEAST_CV = 0.001  # of gamma arrivals; a smaller one above 0 cannot be drawn
LIMITS = ("ttft", "tpot", "e2e", "queue")
TRACE_BUDGET = (5.0, 5.0)  # times unloaded TTFT and TPOT: the budget of a trace without lanes
_MULTIPLE = re.compile(rf"\s*({DECIMAL})\s*x(\s+unloaded)?\s*")


def endpoints_from_traces(
    paths: Sequence[Path], scale: float = TOKEN_SCALE
) -> list[EndpointTraffic]:
    """An endpoint for each trace, weighted by its number of arrivals. All have TRACE_BUDGET."""
    services = list[EndpointTraffic]()
    for priority, path in enumerate(paths):
        name = path.name.split(".")[0]
        if any(name == each.name for each in services):
            raise SettingError(f"two traces are called {name}; name the endpoints in --lanes")
        source = _recorded(str(path), Path(), scale)
        description = f"{source.name}, recorded"
        endpoint = Endpoint(name, "a recorded service", description, priority, *TRACE_BUDGET)
        services.append(EndpointTraffic(endpoint, source, weight=len(source.arrivals)))
    return services


def read_endpoints(path: Path, scale: float = TOKEN_SCALE) -> list[EndpointTraffic]:
    """Read the lanes of a YAML file. SettingError names the lane and the key."""
    return [
        endpoint_of(name, fields, path, (priority, scale))
        for priority, (name, fields) in enumerate(read_lanes(path).items())
    ]


def read_lanes(path: Path) -> dict[str, dict[str, Any]]:
    """Read the fields of each lane in a YAML file. SettingError if there is no lane."""
    if not (plain := read_yaml(path)):
        raise SettingError(f"{path.name} has no lanes")
    return {str(name): mapping(fields, f"{path.name}: {name}") for name, fields in plain.items()}


def endpoint_of(
    name: str, fields: Mapping[str, Any], path: Path, default: tuple[int, float]
) -> EndpointTraffic:
    """An endpoint of a YAML file. default: priority and token scale, if the fields have none.

    SettingError names the key.
    """
    where = f"{path.name}: {name}"
    known(fields, KEYS, where)
    _check_together(fields, where)
    source: RecordedTrace | ArrivalProcess
    if "trace" in fields:
        scale = number(fields.get("token_scale", default[1]), f"{where}: token_scale")
        source = _recorded(str(fields["trace"]), path.parent, scale)
        description = f"{source.name}, recorded"
    else:
        source = _process(fields, where)
        description = "synthetic: " + (
            "all there at the beginning" if source.at_once else "a process"
        )
    limits = mapping(fields.get("budget", {}), f"{where}: budget")
    known(limits, LIMITS, f"{where}: budget")
    times, fixed = _budget(limits, f"{where}: budget")
    serves = str(fields.get("serves", "as its file says"))
    priority = whole(fields.get("priority", default[0]), f"{where}: priority")
    window, place = fields.get("window"), read_place(fields, where)
    return EndpointTraffic(
        Endpoint(name, serves, description, priority, fixed=fixed, place=place, **times),
        source,
        number(fields.get("weight", 1.0), f"{where}: weight"),
        _rate(fields, where),
        Window() if window is None else read_window(window, f"{where}: window"),
        read_tenants(fields.get("tenants", {}), f"{where}: tenants"),
    )


def _check_together(fields: Mapping[str, Any], where: str) -> None:
    """Raise SettingError for a key beside another that would leave it without effect."""
    if ("trace" in fields) == ("arrivals" in fields):
        raise SettingError(f"{where}: say either a trace or arrivals")
    if "rate" in fields and "weight" in fields:
        raise SettingError(f"{where}: say either a rate or a weight")
    for key in ("prompt", "answer") if "trace" in fields else ("token_scale",):
        if key in fields:
            why = "arrivals: a trace has its own lengths" if "trace" in fields else "a trace"
            raise SettingError(f"{where}: {key} is for {why}")


def _rate(fields: Mapping[str, Any], where: str) -> float:
    if "rate" not in fields:
        return 0.0
    if not (rate := number(fields["rate"], f"{where}: rate")):
        raise SettingError(f"{where}: a rate is more than 0; weight: 0 is for no requests")
    return rate


def _budget(limits: Mapping[str, Any], where: str) -> tuple[dict[str, float], Budget]:
    times, fixed = dict[str, float](), dict[str, int]()
    for name, value in limits.items():
        if isinstance(value, str) and (match := _MULTIPLE.fullmatch(value)):
            if name == "queue":
                raise SettingError(f"{where}: queue: alone nobody queues; say milliseconds")
            times[name] = number(float(match[1]), f"{where}: {name}")
            if not times[name]:
                raise SettingError(f"{where}: {name} is {value!r}; a multiple is more than 0")
        elif isinstance(value, str):
            multiple = "" if name == "queue" else ", nor a multiple such as 6 x unloaded"
            raise SettingError(
                f"{where}: {name} is {value!r}, not a number of milliseconds{multiple}"
            )
        else:
            fixed[name] = round(number(value, f"{where}: {name}") * 1e6)
    return times, Budget(**fixed)


def _recorded(trace: str, folder: Path, scale: float) -> RecordedTrace:
    if not number(scale, "the token scale"):
        raise SettingError(f"the token scale must be more than 0, not {scale:g}")
    arrivals = read_shipped_trace(trace) if trace in SHIPPED_TRACES else read_trace(folder / trace)
    if not arrivals:
        raise SettingError(f"the trace {Path(trace).name} has no arrivals")
    return RecordedTrace(arrivals, Path(trace).name, scale)


def _process(fields: Mapping[str, Any], where: str) -> ArrivalProcess:
    if missing := [key for key in ("prompt", "answer") if key not in fields]:
        raise SettingError(f"{where}: an arrival process needs {' and '.join(missing)} lengths")
    value, cv = fields["arrivals"], 1.0
    name = value if isinstance(value, str) else next(iter(mapping(value, f"{where}: arrivals")), "")
    known([name], ("poisson", "gamma", "at-once"), f"{where}: arrivals")
    if not isinstance(value, str):
        inner = mapping(value[name] or {}, f"{where}: {name}")
        known(inner, ("cv",) if name == "gamma" else (), f"{where}: {name}")
        cv = read_cv(inner.get("cv", 1.0), f"{where}: cv")
    prompt, answer = (_lengths(fields[key], f"{where}: {key}") for key in ("prompt", "answer"))
    return ArrivalProcess(prompt, answer, cv, name == "at-once")


def read_cv(value: Any, where: str) -> float:
    """Read the cv of gamma arrivals. SettingError if it is too small to draw gaps with."""
    cv = number(value, where)
    if 0 < cv < LEAST_CV:
        raise SettingError(
            f"{where} is {cv:g}; it must be 0, for even gaps, or {LEAST_CV:g} or more"
        )
    return cv


def _lengths(value: Any, where: str) -> Lengths:
    if isinstance(value, dict):
        known(value, ("mean", "cv"), where)
        mean = number(value.get("mean", 0), f"{where}: mean", 1)
        return Lengths(mean=mean, cv=number(value.get("cv", 0.0), f"{where}: cv"))
    ends = value if isinstance(value, list) else [value, value]
    if len(ends) != 2:
        raise SettingError(f"{where}: {value!r} is neither a number nor [least, most]")
    least, most = (whole(each, where, 1) for each in ends)
    if least > most:
        raise SettingError(f"{where}: {least} is more than {most}")
    return Lengths(least, most)
