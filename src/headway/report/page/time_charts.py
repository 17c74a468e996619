"""A run over time: queue, batch and latency, for all strategies on one axis of time."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from headway.core.request import NEVER
from headway.figures.time_series import (
    longest_ttft,
    mean_batch,
    most_at_once,
    open_spans,
    waiting_spans,
)
from headway.report.analysis import Analysis
from headway.report.formatting import duration
from headway.report.page.html_parts import legend
from headway.report.page.svg_chart import Axis, Chart, log_axis
from headway.runs.outcome import Outcome

PARTS = 100  # of the run's time
WIDE, TALL = 480, 170  # of a chart
Points = list[tuple[float, float]]
Values = Sequence[float | None]  # one per part; None: no value

NOTE = (
    "From the beginning of the run, warm-up included, in {parts} equal parts of {width}. {counts} "
    "Time to the first token: the longest among those who arrived in the part (a dot; parts "
    "without arrivals have none); at the upper edge: none came within the run. Endpoints "
    "whose requests all arrive together have no such chart. Of the first repeat."
)
ENGINE = (
    "Waiting: the most that had arrived and had not been in a step yet. Batch: requests computed "
    "for in a step, mean over the steps' time; a gap: no step ran."
)
CLIENT = "Unanswered: the most at one moment."


def section(found: Analysis, series: Mapping[str, str], shown: Sequence[str]) -> str:
    """All charts, with a note that explains them."""
    runs = {name: found.report.runs[name][0] for name in found.strategies}
    width = part_width(runs)
    charts = [_counts(found, runs, series, width)]
    if not found.is_remote:
        charts.append(_batches(runs, series, width))
    charts += [
        _waits(found, runs, lane, series, width)
        for lane in found.lanes
        if _is_spread(found, lane, width)
    ]
    counts = CLIENT if found.is_remote else ENGINE
    note = NOTE.format(parts=PARTS, width=duration(width), counts=counts)
    return (
        f'<section id="time"><h2>Over time</h2><p class="note">{note}</p>{legend(series, shown)}'
        f'<div class="charts wide">{"".join(charts)}</div></section>'
    )


def part_width(runs: Mapping[str, Outcome]) -> int:
    """Nanoseconds of one part, so that all parts together cover the longest run."""
    ends = [
        max(run.nanoseconds, max((row.arrived + 1 for row in run.requests), default=0))
        for run in runs.values()
    ]
    return -(-max(ends) // PARTS) or 1


def _is_spread(found: Analysis, lane: str, width: int) -> bool:
    """Whether the endpoint's requests arrive in two parts or more, enough for a line."""
    rows = next(iter(found.report.runs.values()))[0].requests
    return len({row.arrived // width for row in rows if row.lane == lane}) > 1


def _axis(width: int) -> Axis:
    return Axis(0, PARTS * width / 1e9, "seconds")


def _figure(chart: Chart, caption: str) -> str:
    return f"<figure>{chart.draw('series')}<figcaption>{escape(caption)}</figcaption></figure>"


def _counts(
    found: Analysis, runs: Mapping[str, Outcome], series: Mapping[str, str], width: int
) -> str:
    """The queue over time; for servers the unanswered requests, as a client sees no queue."""
    spans = open_spans if found.is_remote else waiting_spans
    values = {name: most_at_once(spans(run.requests), width, PARTS) for name, run in runs.items()}
    most = max(max(each) for each in values.values())
    what = "Requests unanswered" if found.is_remote else "Requests waiting"
    chart = Chart(f"{what} over time", _axis(width), Axis(0, most or 1, "requests"), TALL, WIDE)
    for name, each in values.items():
        _draw(chart, each, width, series[name], name)
    return _figure(chart, what)


def _batches(runs: Mapping[str, Outcome], series: Mapping[str, str], width: int) -> str:
    values = {name: mean_batch(run.steps, width, PARTS) for name, run in runs.items()}
    most = max(value or 0 for each in values.values() for value in each)
    y = Axis(0, most or 1, "requests in a step")
    chart = Chart("Batch size over time", _axis(width), y, TALL, WIDE)
    for name, each in values.items():
        _draw(chart, each, width, series[name], name)
    return _figure(chart, "Batch size")


def _waits(
    found: Analysis,
    runs: Mapping[str, Outcome],
    lane: str,
    series: Mapping[str, str],
    width: int,
) -> str:
    values = {}
    for name, run in runs.items():
        rows = [row for row in run.requests if row.lane == lane]
        values[name] = longest_ttft(rows, width, PARTS)
    limit = found.report.lanes[lane].budget.ttft
    came = [value / 1e6 for each in values.values() for value in each if value and value < NEVER]
    y = log_axis([*came, limit / 1e6] if limit < NEVER else came, "milliseconds")
    chart = Chart(f"Longest TTFT of {lane} over time", _axis(width), y, TALL, WIDE)
    if limit < NEVER:
        chart.level(limit / 1e6, f"budget {duration(limit)}")
    for name, each in values.items():
        points = [
            ((part + 0.5) * width / 1e9, value / 1e6)
            for part, value in enumerate(each)
            if value is not None
        ]
        if points:
            chart.line(points, series[name], name)
            chart.dots(points, f"line {series[name]}")
    return _figure(chart, f"Longest time to the first token of {lane}")


def _draw(chart: Chart, values: Values, width: int, kind: str, name: str) -> None:
    for piece in pieces(values, width):
        chart.line(piece, kind, name)


def pieces(values: Values, width: int) -> Iterator[Points]:
    """Lines through the middles of the parts, in seconds. They leave out points inside a level
    stretch and break at parts without a value. A part alone gives a line as wide as the part."""
    seconds = width / 1e9
    for is_gap, each in groupby(enumerate(values), key=lambda pair: pair[1] is None):
        if is_gap:
            continue
        points = [((part + 0.5) * seconds, value or 0.0) for part, value in each]
        if len(points) == 1:
            ((at, value),) = points
            yield [(at - seconds / 2, value), (at + seconds / 2, value)]
            continue
        flat = {
            k
            for k in range(1, len(points) - 1)
            if points[k - 1][1] == points[k][1] == points[k + 1][1]
        }
        yield [point for k, point in enumerate(points) if k not in flat]
