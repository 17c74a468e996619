"""sweep.json: every point of a sweep by strategy, with the knees and capacities."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from statistics import median_low
from typing import Any

from headway import __version__
from headway.commands.compare.compare import CompareOptions
from headway.commands.simulate.capacity_text import Found, Scope, capacity_sentence
from headway.commands.simulate.sweep_point import Figures, SweepPoint
from headway.commands.simulate.sweep_setting import Sweep
from headway.core.request import NEVER
from headway.costing.calibration import Calibration
from headway.errors import SettingError
from headway.figures.capacity import REQUIRED_ATTAINMENT, TOLERANCE
from headway.figures.knee import RULE, find_knee
from headway.figures.percentile import Quantile
from headway.report.reporter import DRAIN
from headway.runs.provenance import provenance_of
from headway.traffic.workload import WARM_UP

VERSION = 1
SweepJson = Mapping[str, Any]  # the file, as JSON has it


def header_of(
    options: CompareOptions, calibration: Calibration, sweep: Sweep, complete: bool
) -> dict[str, Any]:
    """The facts that all points share."""
    traces = [path.name for path in options.traces]
    return {
        "headway_sweep": VERSION,
        "headway": __version__,
        "complete": complete,
        "simulated": provenance_of(calibration),
        "setting": sweep.setting,
        "unit": sweep.unit,
        "values": list(sweep.values),
        "seed": options.seed,
        "repeats": options.repeat,
        "seconds": options.seconds,
        "rate": options.rate,
        "load": options.load,
        "token_scale": options.token_scale,
        **({"enforced": True} if options.enforce else {}),
        "traffic": options.lanes.name
        if options.lanes
        else ", ".join(traces) or "the demo's four endpoints",
        "warm_up": WARM_UP,
        "drain": DRAIN,
        "num_blocks": calibration.num_blocks,
        "fit": calibration.fit,
        "block_size": calibration.block_size,
        "context": calibration.context,
        "knee_rule": RULE,
        "share": REQUIRED_ATTAINMENT,
        "tolerance": TOLERANCE,
    }


def sweep_json(
    about: SweepJson, points: Sequence[SweepPoint], capacities: Mapping[str, Found], scope: Scope
) -> dict[str, Any]:
    plain = {**about, "points": [_point(each) for each in points]}
    names = list(points[0].rules) if points else list(capacities)
    lanes = list(points[0].offered) if points else _lanes(capacities.values())
    is_rate = about["setting"] in ("rate", "load")
    return plain | {
        "strategies": names,
        "lanes": lanes,
        "knees": {
            name: {lane: find_knee(curve(plain, name, lane, "ttft_p95")) for lane in lanes}
            for name in names
            if is_rate and points
        },
        "capacity": {name: _capacity(each, scope) for name, each in capacities.items()},
    }


def _lanes(capacities: Iterable[Found]) -> list[str]:
    tried = [each for found in capacities for each in found.capacity.tried]
    return list(dict.fromkeys(lane for each in tried for lane in each.attainment))


def _point(point: SweepPoint) -> dict[str, Any]:
    return {
        "value": point.value,
        "rate": point.rate,
        "load": point.load,
        "offered": dict(point.offered),
        "trace_ends": point.trace_ends,
        "budgets": {lane: _json_times(asdict(each)) for lane, each in point.budgets.items()},
        "rules": dict(point.rules),
        "figures": [_figures(each) for each in point.figures],
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "strategy": figures.strategy,
        "repeat": figures.repeat,
        "lanes": {
            lane: _json_times(asdict(each))
            | {"attainment": each.attainment, "goodput": figures.goodput[lane]}
            for lane, each in figures.lanes.items()
        },
        "engine": figures.engine.plain,
        "kv_mean": figures.kv_mean,
        "kv_peak": figures.kv_peak,
    }


def _json_times(named: Mapping[str, Any]) -> dict[str, Any]:
    """Times as in report.json: "never" did not come, null is a percentile of too few requests."""
    return {name: "never" if value == NEVER else value for name, value in named.items()}


def _capacity(found: Found, scope: Scope) -> dict[str, Any]:
    capacity, sure = found.capacity, found.sure
    low, high = capacity.bracket
    return {
        "rate": capacity.rate,
        "kept": low,
        "broken": None if high == inf else high,
        "unit": scope.unit,
        "n": sure.counted,
        "of": sure.lane,
        "enough": sure.is_enough,
        "interval": [sure.low, sure.high],
        "said": capacity_sentence(found, scope),
        "tried": [
            {"rate": each.rate, "attainment": dict(each.attainment), "kept": each.kept}
            for each in capacity.tried
        ],
    }


def write(plain: SweepJson, path: Path) -> None:
    """Write the file atomically."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Read sweep.json. Raise SettingError if it is not a sweep of this version."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["headway_sweep"] != VERSION:
            raise SettingError(f"{path.name} is a sweep of version {plain['headway_sweep']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(f"{path.name} cannot be read as a sweep: {error!r}") from error
    return dict(plain)


# -- reading values for charts and tables


def repeats(point: SweepJson, strategy: str) -> list[dict[str, Any]]:
    return [each for each in point["figures"] if each["strategy"] == strategy]


def times(point: SweepJson, strategy: str, lane: str, name: str) -> list[Quantile]:
    """A percentile in each repeat: nanoseconds, NEVER, or None if there were too few requests."""
    values = [each["lanes"][lane][name] for each in repeats(point, strategy)]
    return [NEVER if value == "never" else value for value in values]


def points_with_requests(plain: SweepJson) -> list[SweepJson]:
    """The points of a curve: those with requests after the warm-up."""
    return [each for each in plain["points"] if has_requests(each)]


def has_requests(point: SweepJson) -> bool:
    """Whether the point has any requests after the warm-up."""
    return any(lane["offered"] for each in point["figures"] for lane in each["lanes"].values())


def curve(plain: SweepJson, strategy: str, lane: str, name: str) -> list[tuple[float, Quantile]]:
    """The percentile against the setting. Several repeats give the lower median, a real value."""
    points = []
    for point in points_with_requests(plain):
        values = times(point, strategy, lane, name)
        known = [value for value in values if value is not None]
        whole = known and len(known) == len(values)
        points.append((float(point["value"]), median_low(known) if whole else None))
    return points


def curve_values(
    plain: SweepJson, strategy: str, name: str, lane: str = ""
) -> list[tuple[float, float]]:
    """A figure of the engine against the setting; with a lane, a figure of the lane, at points
    where it has requests."""
    points = []
    for point in points_with_requests(plain):
        found = [each["lanes"][lane] if lane else each for each in repeats(point, strategy)]
        if lane and not all(each["offered"] for each in found):
            continue
        values = [each[name] if name in each else each["engine"][name] for each in found]
        points.append((float(point["value"]), float(median_low(values))))
    return points
