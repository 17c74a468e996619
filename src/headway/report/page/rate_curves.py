"""Charts of latency against the rate and of throughput against the rate, never on one axis.

The page has them if a run tried several rates, as `headway bench --find-capacity` does.
"""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from headway.core.request import NEVER
from headway.figures.percentile import Quantile
from headway.report.analysis import Analysis
from headway.report.formatting import NOT_SAID, duration, figures, milliseconds, share
from headway.report.page.html_parts import table
from headway.report.page.svg_chart import Axis, Chart, axis_of, log_axis

METRICS = {"ttft": "TTFT", "tpot": "TPOT"}
PERCENTS = (50, 95)
AMOUNTS = {"requests_per_second": "answers / s", "output_tokens_per_second": "output tokens / s"}
NOTE = (
    "Each dot is a run at that rate with the same requests, faster or slower. Milliseconds from "
    "the scheduled arrival; solid: p95, dashed: p50. A point of too few requests (p95 needs 100), "
    "or that did not come within the run, is not drawn. The vertical line is the rate of this "
    "report's run."
)
Point = Mapping[str, Any]  # as report.json has it under `rates`


def sections(found: Analysis) -> list[str]:
    """Both sections; none if only one rate was offered."""
    points = sorted(found.report.about.get("rates", []), key=lambda point: float(point["rate"]))
    if len(points) < 2:
        return []
    at = float(found.report.about["workload"]["requests_per_second"])
    return [_latency(found, points, at), _throughput(points, at)]


def _latency(found: Analysis, points: Sequence[Point], at: float) -> str:
    lanes = [lane for lane in found.lanes if any(lane in point["lanes"] for point in points)]
    charts = []
    for lane in lanes:
        charts += [
            f"<figure>{_curve(found, points, lane, metric, at)}<figcaption>{METRICS[metric]} of "
            f"{escape(lane)}</figcaption></figure>"
            for metric in METRICS
            if _values(points, lane, metric)
        ]
    head = ["rate", "endpoint", "n", "in budget"]
    head += [f"{METRICS[metric]} p{percent}" for metric in METRICS for percent in PERCENTS]
    rows = [
        [figures(point["rate"]), lane, *_cells(point["lanes"][lane])]
        for point in points
        for lane in lanes
        if lane in point["lanes"]
    ]
    return (
        f'<section id="rates"><h2>Latency against the rate</h2><p class="note">{NOTE}</p>'
        f'<div class="charts">{"".join(charts)}</div><details><summary>All values</summary>'
        f"{table('rates-latency', head, rows, words=2)}</details></section>"
    )


def _cells(lane: Mapping[str, Any]) -> list[str]:
    times = [_time(lane[f"{metric}_p{p}"]) for metric in METRICS for p in PERCENTS]
    kept = share(lane["good"] / lane["offered"]) if lane["offered"] else NOT_SAID
    return [f"{lane['offered']:,}", kept, *map(milliseconds, times)]


def _time(value: Any) -> Quantile:
    """Read a time of report.json: "never" means not within the run, null too few requests."""
    return NEVER if value == "never" else value


def _values(points: Sequence[Point], lane: str, metric: str) -> list[float]:
    """All known percentiles of a metric, in milliseconds."""
    times = [
        _time(point["lanes"][lane][f"{metric}_p{percent}"])
        for point in points
        for percent in PERCENTS
        if lane in point["lanes"]
    ]
    return [time / 1e6 for time in times if time and time != NEVER]


def _curve(found: Analysis, points: Sequence[Point], lane: str, metric: str, at: float) -> str:
    limit = getattr(found.report.lanes[lane].budget, metric)
    heights = _values(points, lane, metric) + ([limit / 1e6] if limit != NEVER else [])
    chart = Chart(
        f"{METRICS[metric]} of {lane} against the rate",
        _rates(points),
        log_axis(heights, "milliseconds"),
    )
    chart.limit(at, "this run")
    if limit != NEVER:
        chart.level(limit / 1e6, f"budget {duration(limit)}", at_left=True)
    for percent in PERCENTS:
        line = [
            (float(point["rate"]), _time(point["lanes"][lane][f"{metric}_p{percent}"]))
            for point in points
            if lane in point["lanes"]
        ]
        for is_known, piece in groupby(line, key=lambda pair: pair[1] not in (None, NEVER)):
            places = [(rate, (time or 0) / 1e6) for rate, time in piece]
            if is_known:
                _plot(chart, places, f"p{percent}")
    return chart.draw("rates")


def _throughput(points: Sequence[Point], at: float) -> str:
    charts = []
    for name, label in AMOUNTS.items():
        most = max(float(point[name]) for point in points)
        chart = Chart(f"{label} against the rate", _rates(points), Axis(0, most or 1.0, label))
        chart.limit(at, "this run")
        _plot(chart, [(float(point["rate"]), float(point[name])) for point in points], "amount")
        caption = f"<figcaption>{label[:1].upper()}{label[1:]}</figcaption>"
        charts.append(f"<figure>{chart.draw('rates')}{caption}</figure>")
    rows = [[figures(p["rate"]), *(f"{p[name]:,.2f}" for name in AMOUNTS)] for p in points]
    return (
        '<section id="rates-throughput"><h2>Throughput against the rate</h2>'
        f'<div class="charts">{"".join(charts)}</div><details><summary>All values</summary>'
        f"{table('rates-amounts', ['rate', *AMOUNTS.values()], rows)}</details></section>"
    )


def _rates(points: Sequence[Point]) -> Axis:
    return axis_of([float(point["rate"]) for point in points], "offered requests / s")


def _plot(chart: Chart, places: Sequence[tuple[float, float]], kind: str) -> None:
    chart.line(places, f"s0 {kind}", kind)
    chart.dots(places, "line s0")
