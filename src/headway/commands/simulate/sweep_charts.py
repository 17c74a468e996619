"""A sweep's charts: latency, attainment and throughput against the setting, never on one axis."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from headway.commands.simulate.sweep_report import (
    SweepJson,
    curve,
    curve_values,
    points_with_requests,
)
from headway.commands.simulate.sweep_verdict import worst
from headway.core.request import NEVER
from headway.figures.percentile import Quantile
from headway.report.page.svg_chart import Axis, Chart, axis_of, log_axis

NAMES = {"ttft": "TTFT", "tpot": "TPOT"}
Series = Mapping[str, str]  # the class of each strategy's lines
Places = Sequence[tuple[float, float]]


def x_axis(sweep: SweepJson) -> Axis:
    """The axis of the swept setting, the same in every chart of the page.

    It spans the simulated values and the capacities; without values, all rates tried in the search.
    """
    kept = {each["value"] for each in points_with_requests(sweep)}
    missed = {each["value"] for each in sweep["points"]} - kept
    values = [value for value in sweep["values"] if value not in missed]
    for found in sweep["capacity"].values():
        if not sweep["points"]:
            values += [each["rate"] for each in found["tried"] if each["attainment"]]
        elif found["enough"] and found["rate"]:
            values += [found["rate"], *([found["broken"]] if found["broken"] else [])]
    return axis_of(values, f"{sweep['setting'].replace('_', ' ')}, {sweep['unit']}")


def latency(sweep: SweepJson, lane: str, metric: str, series: Series) -> str:
    """Draw p95 solid and p50 dashed for each strategy, the budget, and the knees on TTFT p95.

    A point is left out if it did not come within the run, or has too few values.
    """
    lines = {
        (name, percent): _milliseconds(curve(sweep, name, lane, f"{metric}_p{percent}"))
        for name in series
        for percent in (50, 95)
    }
    limits = {point["budgets"][lane][metric] for point in sweep["points"]}
    limit = limits.pop() / 1e6 if len(limits) == 1 and "never" not in limits else 0.0
    y = _latency_axis(sweep, metric, series)
    chart = Chart(f"{lane}: {NAMES[metric]}", x_axis(sweep), y)
    if limit:
        _level(chart, limit, f"budget {limit:.4g} ms")
    for (name, percent), pieces in lines.items():
        kind = f"{series[name]} p{percent}"
        for piece in pieces:
            chart.line(piece, kind, f"{name} p{percent}")
            chart.dots(piece, f"line {kind}")
    for name in series if metric == "ttft" else ():
        if (at := sweep["knees"].get(name, {}).get(lane)) is not None:
            height = _between(lines[name, 95], at)
            chart.dots([(at, height)] if height else [], f"line mark {series[name]}")
    return chart.draw("latency")


def _latency_axis(sweep: SweepJson, metric: str, series: Series) -> Axis:
    """One axis for all endpoints, so that their charts can be compared."""
    lines = [
        curve(sweep, name, lane, f"{metric}_p{percent}")
        for lane in sweep["lanes"]
        for name in series
        for percent in (50, 95)
    ]
    heights = [ms for line in lines for piece in _milliseconds(line) for _, ms in piece]
    limits = {
        point["budgets"][lane][metric] for lane in sweep["lanes"] for point in sweep["points"]
    }
    return log_axis([*heights, *(each / 1e6 for each in limits - {"never"})], "milliseconds")


def _milliseconds(values: Iterable[tuple[float, Quantile]]) -> list[list[tuple[float, float]]]:
    """The values in milliseconds, in pieces: a line breaks where a value is missing."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in values:
        if value is None or value == NEVER:
            pieces.append([])
        else:
            pieces[-1].append((at, value / 1e6))
    return [piece for piece in pieces if piece]


def _between(pieces: Iterable[Places], at: float) -> float | None:
    """The line's height at `at`, on a logarithmic axis; None if the line does not reach there."""
    for piece in pieces:
        for (before, low), (after, high) in pairwise(piece):
            if before <= at <= after:
                return float(low * (high / low) ** ((at - before) / (after - before)))
    return None


def attainment(sweep: SweepJson, lane: str, series: Series) -> str:
    """Draw the share of an endpoint's requests inside its budget."""
    chart = Chart(f"{lane}: in budget", x_axis(sweep), Axis(0, 1, "share in budget"))
    _level(chart, sweep["share"], f"{100 * sweep['share']:g} %")
    for name, kind in series.items():
        _plotted(chart, curve_values(sweep, name, "attainment", lane), kind, name)
    return chart.draw("attainment")


def worst_endpoint_chart(sweep: SweepJson, series: Series) -> str:
    """The worst endpoint's share in budget at every value and rate tried, and the capacities."""
    x = x_axis(sweep)
    chart = Chart("worst endpoint: in budget", x, Axis(0, 1, "share in budget"))
    _level(chart, sweep["share"], f"{100 * sweep['share']:g} %")
    for name, kind in series.items():
        found = sweep["capacity"].get(name)
        tried = dict(worst(sweep, name))
        for each in found["tried"] if found else []:
            if each["attainment"] and x.low <= each["rate"] <= x.high:
                tried[each["rate"]] = min(each["attainment"].values())
        _plotted(chart, sorted(tried.items()), kind, name)
        if found and found["rate"] and found["enough"]:
            chart.dots([(found["rate"], sweep["share"])], f"line mark {kind}")
    return chart.draw("least")


def engine_chart(sweep: SweepJson, name: str, label: str, series: Series, most: float = 0.0) -> str:
    """Draw one figure of the engine. most: the axis's upper end; 0: the largest value."""
    places = {each: curve_values(sweep, each, name) for each in series}
    top = most or max((y for each in places.values() for _, y in each), default=0.0)
    chart = Chart(label, x_axis(sweep), Axis(0, top or 1.0, label))
    for each, kind in series.items():
        _plotted(chart, places[each], kind, each)
    return chart.draw("amount")


def _plotted(chart: Chart, places: Places, kind: str, hint: str) -> None:
    if places:
        chart.line(places, kind, hint)
        chart.dots(places, f"line {kind}")


def _level(chart: Chart, y: float, hint: str) -> None:
    chart.line([(chart.x.low, y), (chart.x.high, y)], "limit", hint)
