"""The report's charts: shares in budget, latency distributions, batches, step times."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal

from headway.core.ledger import StepRow
from headway.core.request import NEVER
from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.report.analysis import Analysis, spread, values_of
from headway.report.formatting import duration, share
from headway.report.page.page_tables import METRICS
from headway.report.page.svg_chart import Axis, Chart, log_axis
from headway.runs.outcome import Outcome

SMALL = 150  # height of a chart drawn once per strategy
BINS = 60  # of a run's time
POINTS = 80  # of a distribution's line
DOTS = 200  # per scatter and kind: with more steps, every second, third or n-th is drawn
ROW, HEAD, FOOT = 21, 24, 30  # heights in the first chart: of a row, above and below the rows
LETTER = 7.3  # width of a letter of a strategy's name, in a wide font
BOLD = 8.3  # width of a letter of a panel's title
NAME = 15  # height of a strategy's name above its bar
PHONE = 360  # width of the first chart on a phone
LEAST = 80  # the least width of 100 %, and what the ticks 0, 50 and 100 % need
EDGE = 12  # left of bars with their names above, for half of a tick's text
KINDS = ("decode", "prompt", "padding", "held")


Bar = tuple[str, float, str]  # a strategy, its share in budget, and the share as text
Names = Literal["", "beside", "above"]  # where the bars' names are; "": the panel has none


def kept_share(found: Analysis, name: str, lane: str) -> float:
    """The share of an endpoint's requests inside its budget, as the median over the repeats."""
    return spread([each.attainment for each in found.latency[name][lane]])[0]


def attainment(found: Analysis, lanes: Sequence[str], names: Sequence[str], across: int) -> str:
    """Each endpoint's share in budget as a bar for each strategy, on one axis from 0 to 100 %.

    across: panels side by side; 1 for a phone.
    """
    if across == 1:
        return _attainment_on_phone(found, lanes, names)
    across = min(across, len(lanes))
    label = _label(found, names)
    panel = (1_080 - (label if across > 1 else 0)) / across
    tall = HEAD + len(names) * ROW + FOOT
    parts = []
    for number, lane in enumerate(lanes):
        top, left = number // across * tall, (number % across) * panel
        counted, bars = _bars_of(found, lane, names)
        room = panel - 20 - max(46, 6 + _widest(bars)) - (label if across == 1 else 0)
        where: Names = "" if number % across else "beside"
        parts.append(_bars((lane, counted), bars, (label + left, top, room), where))
    return _picture((1_080, -(-len(lanes) // across) * tall), found.noun, parts)


def _attainment_on_phone(found: Analysis, lanes: Sequence[str], names: Sequence[str]) -> str:
    panels = [(lane, *_bars_of(found, lane, names)) for lane in lanes]
    left, room, where = _room([bar for *_, bars in panels for bar in bars])
    tall = HEAD + len(names) * _tall(where) + FOOT
    parts = [
        _bars((lane, counted), bars, (left, number * tall, room), where)
        for number, (lane, counted, bars) in enumerate(panels)
    ]
    return _picture((PHONE, len(panels) * tall), found.noun, parts)


def _bars_of(found: Analysis, lane: str, names: Sequence[str]) -> tuple[str, list[Bar]]:
    """The number of requests, and the bars. If the numbers differ, each bar states its own."""
    counts = {name: found.latency[name][lane][0].offered for name in names}
    parts = {name: kept_share(found, name, lane) for name in names}
    if len(set(counts.values())) == 1:
        bars = [(found.title(name), part, share(part)) for name, part in parts.items()]
        return f"n {counts[names[0]]:,}", bars
    return "", [
        (found.title(name), part, f"{share(part)} n {counts[name]:,}")
        for name, part in parts.items()
    ]


def least_kept(found: Analysis, lanes: Sequence[str], names: Sequence[str]) -> str:
    """Each strategy's least share in budget over the endpoints, for a phone."""
    bars = list[Bar]()
    for name in names:
        part, lane = min((kept_share(found, name, lane), lane) for lane in lanes)
        bars.append((found.title(name), part, f"{share(part)} {lane}"))
    left, room, where = _room(bars)
    parts = [_bars(("", ""), bars, (left, -HEAD + 6, room), where)]
    return _picture((PHONE, 6 + len(names) * _tall(where) + FOOT - 10), found.noun, parts)


def _room(bars: Sequence[Bar]) -> tuple[float, float, Names]:
    """A phone's left edge of the bars, width of 100 %, and place of the names: beside the bars if
    that leaves them LEAST, else above."""
    label = LETTER * max(len(name) for name, _, _ in bars) + 10
    words = max(46, _widest(bars)) + EDGE
    if (room := PHONE - label - words) >= LEAST:
        return label, room, "beside"
    return EDGE, max(LEAST, PHONE - EDGE - words), "above"


def _tall(where: Names) -> int:
    return ROW + (NAME if where == "above" else 0)


def _widest(bars: Sequence[Bar]) -> float:
    return LETTER * max(len(text) for _, _, text in bars)


def cut(text: str, width: float) -> str:
    """A text in the charts' letters that is no wider: its end gives way to an ellipsis."""
    letters = int(width / LETTER)
    return text if len(text) <= letters else f"{text[: max(0, letters - 1)]}\u2026"


def _label(found: Analysis, names: Sequence[str]) -> float:
    """The width that the strategies' names need."""
    return LETTER * max(len(found.title(name)) for name in names) + 10


def _picture(size: tuple[float, float], noun: str, parts: Sequence[str]) -> str:
    return "".join(
        [
            f'<svg class="chart attainment" viewBox="0 0 {size[0]} {size[1]}" role="img" '
            f'aria-label="Share of each endpoint\'s requests inside its budget, by {noun}">',
            *parts,
            "</svg>",
        ]
    )


def _bars(
    title: tuple[str, str],
    bars: Sequence[Bar],
    place: tuple[float, float, float],
    where: Names,
) -> str:
    """Draw one panel. title: an endpoint and its number of requests. place: the left edge of the
    bars, the panel's top and the width of 100 %. where: the place of the strategies' names."""
    left, top, room = place
    end = top + HEAD + len(bars) * _tall(where)
    if where == "above":
        most = PHONE - EDGE - left - room
        bars = [(cut(name, PHONE), part, cut(text, most)) for name, part, text in bars]
    widest, named = max(46, _widest(bars)), list[str]()
    heading = max(0, min(left, left + room + widest - BOLD * len(" ".join(title))))
    parts = [
        f'<text class="title" x="{heading:.1f}" y="{top + 13}">{escape(title[0])} '
        f'<tspan class="dim">{title[1]}</tspan></text>'
        if title[0]
        else ""
    ]
    for part in (0, 0.5, 1) if room >= LEAST else (0, 1):
        x = left + part * room
        parts.append(
            f'<path class="grid" d="M{x:.1f} {top + HEAD - 4}V{end}"/><text text-anchor="middle" '
            f'x="{x:.1f}" y="{end + 14}">{share(part)}</text>'
        )
    for row, (name, part, text) in enumerate(bars):
        y, kind = (
            top + HEAD + row * _tall(where),
            "kept" if part >= REQUIRED_ATTAINMENT else "missed",
        )
        if where == "beside":
            named.append(_name(name, left - 8, y + 14, ' text-anchor="end"'))
        elif where == "above":
            named.append(_name(name, 0, y + 12))
            y += NAME
        parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{y + 3}" width="{max(1, part * room):.1f}" '
            f'height="{ROW - 7}" rx="1.5"/><text class="value {kind}" '
            f'text-anchor="end" x="{left + room + widest:.1f}" y="{y + 14}">{escape(text)}</text>'
        )
    x = left + REQUIRED_ATTAINMENT * room
    limit = f'<path class="limit" d="M{x:.1f} {top + HEAD - 4}V{end}"/>'
    return "".join([*parts, limit, *named])


def _name(name: str, x: float, y: float, anchor: str = "") -> str:
    return f'<text class="name"{anchor} x="{x:.1f}" y="{y}">{escape(name)}</text>'


def distribution(found: Analysis, lane: str, metric: str, series: dict[str, str]) -> str:
    """The cumulative distribution of a metric in milliseconds, one line per strategy.

    A line ends below 1 if some requests never got the value within the run.
    """
    values = {name: sorted(values_of(found.first(name), lane, metric)) for name in found.strategies}
    limit = getattr(found.report.lanes[lane].budget, metric)
    came = [value / 1e6 for each in values.values() for value in each if 0 < value < NEVER]
    if limit != NEVER:
        came.append(limit / 1e6)
    x = log_axis(came, f"{METRICS[metric]}, milliseconds")
    chart = Chart(f"{lane}: {metric.upper()}", x, Axis(0, 1, "share of requests"))
    if limit != NEVER:
        chart.limit(limit / 1e6, f"budget {duration(limit)}")
    for name, each in values.items():
        if each:
            chart.line(_steps(each), series[name], name)
    return chart.draw("distribution")


def _steps(ordered: Sequence[int]) -> list[tuple[float, float]]:
    count = len(ordered)
    ranks = sorted({1 + (count - 1) * k // (POINTS - 1) for k in range(POINTS)})
    return [(ordered[r - 1] / 1e6, r / count) for r in ranks if ordered[r - 1] < NEVER] or [(0, 0)]


def rates(outcome: Outcome, seconds: float) -> dict[str, list[float]]:
    """Tokens computed per second, by kind, in BINS equal parts of `seconds`."""
    width = seconds * 1e9 / BINS
    sums = {kind: [0.0] * BINS for kind in KINDS}
    for row in outcome.steps:
        at = min(BINS - 1, int(row.began / width))
        for kind, tokens in zip(KINDS, kinds_of(row), strict=True):
            sums[kind][at] += tokens / width * 1e9
    return sums


def compositions(found: Analysis) -> dict[str, str]:
    """A chart per strategy: tokens computed per second in the first run, stacked by kind. All
    share the same two axes, so that they can be compared."""
    first = {name: found.report.runs[name][0] for name in found.strategies}
    seconds = max(each.nanoseconds for each in first.values()) / 1e9 or 1.0
    sums = {name: rates(each, seconds) for name, each in first.items()}
    most = max(max(map(sum, zip(*each.values(), strict=True))) for each in sums.values()) or 1.0
    return {name: _composition(name, each, seconds, most) for name, each in sums.items()}


def _composition(
    name: str, sums: Mapping[str, Sequence[float]], seconds: float, most: float
) -> str:
    x, y = Axis(0, seconds, ""), Axis(0, most, "")
    chart = Chart(f"{name}: tokens computed per second", x, y, height=SMALL)
    width = seconds * 1e9 / BINS
    low = [0.0] * BINS
    for kind in KINDS:
        high = [a + b for a, b in zip(low, sums[kind], strict=True)]
        points = [(at * width / 1e9, low[k], high[k]) for k in range(BINS) for at in (k, k + 1)]
        whole = sum(sums[kind]) * width / 1e9
        chart.area(points, f"k-{kind}", f"{kind}: {whole:,.0f} tokens")
        low = high
    return chart.draw("composition")


def kinds_of(row: StepRow) -> tuple[int, int, int, int]:
    """A step's tokens by kind, in the order of KINDS."""
    return row.decodes, row.tokens - row.decodes, row.padding_tokens, row.held_tokens


def scatters(found: Analysis) -> dict[str, str]:
    """A chart per strategy: each step's time against the tokens it computed, which in a step of
    decodes alone is the batch size. All share the same two axes."""
    return {name: _scatter(found, name) for name in found.strategies}


def _scatter(found: Analysis, name: str) -> str:
    steps = found.counted[name][0].steps
    all_steps = [row for runs in found.counted.values() for row in runs[0].steps]
    x = log_axis((row.tokens + row.waste_tokens for row in all_steps), "")
    y = log_axis((row.nanoseconds / 1e6 for row in all_steps), "")
    chart = Chart(f"{name}: step time against tokens", x, y, height=SMALL)
    for series, wanted in (("k-prompt", False), ("k-decode", True)):
        chosen = [row for row in steps if (row.tokens == row.decodes) is wanted]
        kept = chosen[:: -(-len(chosen) // DOTS) or 1]
        chart.dots(((row.tokens + row.waste_tokens, row.nanoseconds / 1e6) for row in kept), series)
    return chart.draw("scatter")
