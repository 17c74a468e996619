"""The page of two reports' differences: a sentence, a chart and a table first."""

from collections.abc import Sequence
from html import escape

from headway.figures.intervals.difference import IN_BUDGET, Difference
from headway.report.difference.difference_tables import HEAD, cells, how_paired, notes
from headway.report.difference.pairing import PairedLane, Pairing
from headway.report.page.html_parts import asset, table
from headway.report.page.page_charts import LETTER, NAME, cut

ROW = 21  # height of a row of the chart
LEAST = 12  # letters of a strategy's name that are left of it
DESK, PHONE = 1_080, 360  # widths of the chart
SHOWN = 8  # the most rows of the first chart and table: those that differ most


def difference_page(pairing: Pairing) -> str:
    """The whole page as one self-contained document."""
    first, second = map(escape, pairing.titles)
    answer = pairing.answer.replace(" %", "\u00a0%")
    differs = "".join(f'<p class="warning">{escape(text)}</p>' for text in pairing.others)
    left_out = "".join(f'<p class="note">{escape(text)}</p>' for text in pairing.left_out)
    lanes = "".join(_lane(each) for each in pairing.lanes)
    rates = [[name, *cells(each)] for name, mine in pairing.rates.items() for each in mine]
    throughput = table("throughput", ["strategy", *HEAD], rates, words=2)
    text = "".join(f'<p class="note">{escape(note)}</p>' for note in notes(pairing))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>headway report: {first} and {second}</title><style>{asset('report.css')}</style>"
        f'</head><body><header><p class="eyebrow">headway report · first: {first} · second: '
        f"{second}</p><h1>{escape(answer)}</h1></header><main>{_first(pairing)}"
        f'<section id="differs"><h2>What else differs</h2>'
        f"{differs or '<p>Nothing that the reports state.</p>'}{left_out}</section>{lanes}"
        f'<section id="rates"><h2>Throughput</h2>{throughput}</section>'
        f'<section id="notes"><h2>How to read it</h2>{text}</section></main>'
        f"<script>{asset('report.js')}</script></body></html>\n"
    )


def _first(pairing: Pairing) -> str:
    shares = [
        (each, change)
        for each in pairing.lanes
        for change in each.differences
        if change.metric == IN_BUDGET
    ]
    most = sorted(shares, key=lambda pair: -abs(pair[1].change))[:SHOWN]
    shown = [pair for pair in shares if pair in most]
    rows = [[f"{each.strategy}, {each.lane}", *cells(change)[1:]] for each, change in shown]
    cut = f" The {SHOWN} that differ most of {len(shares)}." if len(shares) > SHOWN else ""
    return (
        f'<section id="verdict"><figure class="first"><div class="on-desk">'
        f'{_chart(shown, DESK)}</div><div class="on-phone">{_chart(shown, PHONE)}</div>'
        "<figcaption>Requests inside their budget, points of a hundred: the second report less "
        "the first, with 95 % intervals."
        f"{cut}</figcaption></figure>{table('shares', ['strategy, endpoint', *HEAD[1:]], rows)}"
        "</section>"
    )


def _chart(shown: Sequence[tuple[PairedLane, Difference]], width: int) -> str:
    """A chart around 0, with a dot and its interval for each strategy and lane."""
    pairs = [(each.strategy, each.lane) for each, _ in shown]
    names = [_cut(*pair, 0.55 * width) for pair in pairs]
    label = LETTER * max(map(len, names), default=0) + 10
    above = NAME if label > 0.6 * width or len({*names}) < len({*pairs}) else 0
    if above:
        label, names = 0.0, [_cut(*pair, width) for pair in pairs]
    tall = ROW + above
    ends = [
        abs(end)
        for _, change in shown
        for end in (change.change, change.interval.low, change.interval.high)
    ]
    most = max([*ends, 0.05])
    middle, room = (label + width) / 2, (width - label) / 2 - 24
    bottom = 8 + tall * len(shown)

    def at(value: float) -> float:
        return middle + value / most * room

    parts = [
        f'<svg class="chart attainment" viewBox="0 0 {width} {bottom + 22}" role="img" '
        'aria-label="Differences of the shares in budget, with intervals">'
    ]
    for value in (-most, 0.0, most):
        parts.append(
            f'<path class="{"limit" if not value else "grid"}" d="M{at(value):.1f} 4V{bottom}"/>'
            f'<text text-anchor="middle" x="{at(value):.1f}" y="{bottom + 15}">'
            f"{100 * value:+.0f}</text>"
        )
    for row, ((_, change), name) in enumerate(zip(shown, names, strict=True)):
        y = 8 + tall * row + above + ROW / 2
        place = (
            f'x="0" y="{y - 10}"' if above else f'text-anchor="end" x="{label - 8:.1f}" y="{y + 4}"'
        )
        kind = change.verdict if not change.interval.is_empty else "unclear"
        low, high = change.interval.low, change.interval.high
        line = f"M{at(low):.1f} {y}H{at(high):.1f}" if not change.interval.is_empty else ""
        parts.append(
            f'<text class="name" {place}>{escape(name)}</text>'
            f'<path class="change {kind}" d="{line}"/>'
            f'<circle class="change {kind}" cx="{at(change.change):.1f}" cy="{y}" r="4.5"/>'
        )
    return "".join([*parts, "</svg>"])


def _cut(strategy: str, lane: str, width: float) -> str:
    """A row's name within a width. The strategy's end is left out first, so that the lane says
    which row it is."""
    room = width - LETTER * len(f", {lane}")
    return f"{cut(strategy, max(room, LETTER * LEAST))}, {lane}"


def _lane(each: PairedLane) -> str:
    name = f"{each.strategy}, {each.lane}"
    rows = [cells(change) for change in each.differences]
    return (
        f"<section><h2>{escape(name)}</h2>"
        f"{table('difference-' + name.replace(' ', '-'), HEAD, rows)}"
        f'<p class="note">Compared by {how_paired(each)}.</p></section>'
    )
