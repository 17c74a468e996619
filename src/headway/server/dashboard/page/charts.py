"""Charts of the last 15 minutes: waits, attainment, batch size, running and waiting, memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from headway.core.request import NEVER
from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.report.formatting import duration
from headway.report.page.svg_chart import Axis, Chart, axis_of
from headway.server.dashboard.page.html_table import Html
from headway.server.dashboard.view import POINT, POINTS, LanePoint, LaneView, ModelView, Times

WIDE, TALL = 480, 170
MINUTE = 60_000_000_000
LANE_COLOURS = 8  # colours in the style sheet; further lanes reuse them from the first on
X = Axis(-POINTS * POINT / MINUTE, 0, "minutes")
NOTE = (
    "Each point is half a minute. p50 needs 10 requests in it and p95 needs 100; a gap: there were "
    "fewer. Waits are of requests that ended then, and right to within 3 %. Batch: rows of a step, "
    "mean over the steps' time. Running, waiting and KV: the most after a step."
)

Values = Sequence[float | None]  # one per point; None: not known


@dataclass(frozen=True, slots=True)
class _Line:
    values: Values
    kind: str  # its CSS classes
    name: str  # in the legend


def charts(model: ModelView) -> Html:
    """All charts of a model."""
    busy = [lane for lane in model.lanes if any(point.ended for point in lane.points)]
    drawn = [
        chart
        for lane in busy
        for chart in (
            _waits("Time to first token", lane, lambda p: p.ttft, lane.budget.ttft),
            _waits("Queue wait", lane, lambda p: p.queue, lane.budget.queue),
        )
    ]
    points = model.points
    drawn.append(_attainment(model))
    size = _Line([p.batch for p in points], "k-decode", "rows in a step")
    drawn.append(_drawn("Batch size", "rows", [size], (model.slots, f"{model.slots} slots")))
    drawn.append(
        _drawn(
            "Running and waiting",
            "requests",
            [
                _Line([p.running for p in points], "k-decode", "running"),
                _Line([p.waiting for p in points], "k-padding", "waiting"),
            ],
        )
    )
    if model.num_blocks:
        shares = [None if p.blocks is None else 100 * p.blocks / model.num_blocks for p in points]
        used = _Line(shares, "k-prompt", "blocks in use")
        drawn.append(_drawn("KV memory", "% of blocks", [used], (100, "")))
    drawn.append(_turned_away(model))
    quiet = ", ".join([lane.name for lane in model.lanes if lane not in busy])
    without = f" No requests ended in: {escape(quiet)}." if quiet else ""
    return Html(
        f'<div class="charts live">{"".join(drawn)}</div><p class="note">{NOTE}{without}</p>'
    )


def _waits(
    what: str,
    lane: LaneView,
    times: Callable[[LanePoint], Times],
    limit: int,
) -> str:
    lines = [
        _Line([_milliseconds(times(p), name) for p in lane.points], f"{colour} {name}", name)
        for name, colour in (("p50", "k-decode"), ("p95", "k-decode"), ("longest", "k-padding"))
    ]
    level = (limit / 1e6, f"budget {duration(limit)}") if limit != NEVER else None
    return _drawn(f"{what} of {lane.name}", "milliseconds", lines, level)


def _milliseconds(times: Times, name: str) -> float | None:
    value: int | None = getattr(times, name)
    return None if value is None else value / 1e6


def _attainment(model: ModelView) -> str:
    lines = [
        _Line(
            [100 * p.good / p.ended if p.ended else None for p in lane.points],
            lane_class(k),
            lane.name,
        )
        for k, lane in enumerate(model.lanes)
    ]
    least = 100 * REQUIRED_ATTAINMENT
    return _drawn("In budget", "% of requests", lines, (least, f"{least:.0f} %"), Axis(0, 100, ""))


def _turned_away(model: ModelView) -> str:
    lines = [
        _Line([float(getattr(p, field)) for p in lane.points], f"{lane_class(k)} {kind}", name)
        for k, lane in enumerate(model.lanes)
        for field, kind, name in (
            ("refused", "p95", f"{lane.name} refused"),
            ("abandoned", "p50", f"{lane.name} abandoned"),
        )
        if any(getattr(p, field) for p in lane.points)
    ]
    return _drawn("Refused and abandoned", "requests", lines)


def lane_class(number: int) -> str:
    """The CSS class that gives a lane's lines their colour."""
    return f"lane-{number % LANE_COLOURS}"


def _drawn(
    title: str,
    unit: str,
    lines: Sequence[_Line],
    level: tuple[float, str] | None = None,
    y: Axis | None = None,
) -> str:
    """A figure with its legend. level: the value and the label of a dashed line."""
    known = [value for line in lines for value in line.values if value is not None]
    ends = [*known, level[0]] if level else known
    axis = Axis(y.low, y.high, unit) if y else axis_of(ends, unit)
    chart = Chart(_told(title, lines), X, axis, TALL, WIDE)
    if level:
        chart.level(*level, at_left=True)
    for line in lines:
        is_dotted = line.kind.endswith("longest")
        for piece in _pieces(line.values) if not is_dotted else ():
            chart.line(piece, line.kind, line.name)
        chart.dots(_known(line.values) if is_dotted else _alone(line.values), line.kind)
    keys = "".join(f'<span class="{line.kind}"><i></i>{escape(line.name)}</span>' for line in lines)
    empty = "" if known else '<span class="none">nothing yet</span>'
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{chart.draw('rates')}"
        f'<p class="key">{keys}{empty}</p></figure>'
    )


def _told(title: str, lines: Sequence[_Line]) -> str:
    """The chart in words: the latest value of each line."""
    latest = [
        f"{line.name} {next((f'{v:.3g}' for v in reversed(line.values) if v is not None), '-')}"
        for line in lines
    ]
    return f"{title}; latest: {', '.join(latest)}" if latest else f"{title}: nothing yet"


def _x(point: int) -> float:
    return X.low + (point + 0.5) * POINT / MINUTE


def _pieces(values: Values) -> Iterator[list[tuple[float, float]]]:
    """The runs of two or more consecutive known points, each drawn as a line."""
    for is_gap, each in groupby(enumerate(values), key=lambda pair: pair[1] is None):
        points = [(_x(k), value or 0.0) for k, value in each]
        if not is_gap and len(points) > 1:
            yield points


def _known(values: Values) -> list[tuple[float, float]]:
    return [(_x(k), value) for k, value in enumerate(values) if value is not None]


def _alone(values: Values) -> list[tuple[float, float]]:
    """The known points without a known neighbour, which no line goes through."""
    padded = [None, *values, None]
    return [
        (_x(k), value)
        for k, value in enumerate(values)
        if value is not None and padded[k] is None and padded[k + 2] is None
    ]
