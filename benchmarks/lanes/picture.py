"""The picture of the flood: two runs above each other on one axis of time, a line a request."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isinf

from benchmarks.lanes.load import BEGIN, END, LANES, LIMITS, SLOTS, Run, Seen
from benchmarks.report import machine

WIDTH, EDGE, TOP, FOOT, GAP, LINE = 720, 14, 78, 40, 26, 24  # pixels
ROW = {"voice": 2.5, "chat": 2.0, "nightly": 3.5}  # pixels of a request
COLOURS = {"voice": ("#0072b2", "#4ea8de"), "chat": ("#009e73", "#2fc08e")}
COLOURS["nightly"] = ("#8a6fb0", "#b39bd8")
STYLE = """
  .page { fill: #ffffff } text { font: 14px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 18px; font-weight: 600 } .small { font-size: 13px; fill: #57606a }
  .name { font-size: 16px; font-weight: 600 } .rule { stroke: #d8dee4 } .waits { fill: #b6bcc4 }
  .no { fill: #d1495b }
"""
NARROW = """
    text { font-size: 19px } .title { font-size: 22px } .small { font-size: 18px }
    .name { font-size: 21px }
"""
DARK = """
    .page { fill: #14181d } text { fill: #e6edf3 } .small { fill: #9da7b1 }
    .rule { stroke: #30363d } .waits { fill: #59616b } .no { fill: #ff7b8a }
"""


def picture(runs: Mapping[str, Run]) -> str:
    """runs: by the server's strategy, in the order of the panels."""
    span = max(each.end for run in runs.values() for each in run.seen)
    scale = (WIDTH - 2 * EDGE) / span
    parts, y = list[str](), float(TOP)
    for name, run in runs.items():
        drawn, y = _panel(name, run, y, scale)
        parts += drawn
        y += GAP
    height = y + FOOT - GAP
    some = len(next(iter(runs.values())).of())
    title = "A nightly job takes all slots, then voice and chat come"
    caption = f"{SLOTS} slots; {some} requests in {END - BEGIN:g} s; embedded model, {machine()}"
    light = "".join(f"  .{name} {{ fill: {each[0]} }}\n" for name, each in COLOURS.items())
    dark = "".join(f"    .{name} {{ fill: {each[1]} }}\n" for name, each in COLOURS.items())
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    said = " ".join([caption, *(f"{name}: {finding(run)}." for name, run in runs.items())])
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>",
        f"<style>{STYLE}{light}  @media (max-width: 540px) {{{NARROW}  }}",
        f"  @media (prefers-color-scheme: dark) {{{DARK}{dark}  }}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height:.0f}" rx="6"/>',
        _text(EDGE, 27, title, "title"),
        _text(EDGE, 52, caption, "small"),
    ]
    return "\n".join([*head, *parts, *_legend(height - 12), "</svg>", ""])


def headline(name: str, run: Run) -> str:
    return f"{name}: {100 * run.good():.0f} % inside budget"


def finding(run: Run) -> str:
    """What the callers saw, in one line."""
    refused, count, wait = run.refused(), len(run.of()), run.served_ttft
    if isinf(wait):
        told = f"all {count} told no"
    elif refused:
        told = f"{refused} of {count} told no, the others' p95 TTFT {_seconds(wait)}"
    else:
        told = f"p95 TTFT {_seconds(wait)}"
    return f"{told}; nightly {run.rate:,.0f} tokens/s"


def _seconds(wait: float) -> str:
    return f"{wait:.1f} s" if wait >= 1 else f"{1e3 * wait:.0f} ms"


def _panel(name: str, run: Run, top: float, scale: float) -> tuple[list[str], float]:
    """The panel's parts, and where it ends."""
    parts = [_text(EDGE, top + 16, headline(name, run), "name")]
    parts.append(_text(EDGE, top + 16 + LINE, finding(run)))
    begin = y = top + 24 + LINE
    for lane in LANES:
        mine = run.of((lane,))
        parts.append(_text(EDGE + 6, y + 17, _label(lane, mine), "small"))
        y += LINE
        for each in mine:
            parts += _line(each, y, scale)
            y += ROW[lane]
    y += 4
    return [*_rules(begin, y, scale), *parts], y + 22


def _label(lane: str, mine: Sequence[Seen]) -> str:
    good, end = sum(each.good for each in mine), max(each.end for each in mine)
    if lane not in LIMITS:
        return f"{lane}, no budget: {good} of {len(mine)} served, the last until {end:.0f} s"
    first, gap, _ = LIMITS[lane]
    budget = f"{first:g} s to the first token, {1e3 * gap:.0f} ms a token"
    return f"{lane}, {budget}: {good} of {len(mine)}"


def _line(each: Seen, y: float, scale: float) -> Iterator[str]:
    lane, x = each.ask.lane, EDGE + each.ask.due * scale
    height = ROW[lane] - 0.5
    if each.status != 200:
        yield _box("no", x, y, max(4.0, (each.end - each.ask.due) * scale), height)
        return
    yield _box("waits", x, y, (each.first - each.ask.due) * scale, height)
    yield _box(lane, EDGE + each.first * scale, y, (each.end - each.first) * scale, height)


def _rules(top: float, foot: float, scale: float) -> Iterator[str]:
    for second in range(0, int((WIDTH - 2 * EDGE) / scale) + 1, 5):
        x = EDGE + second * scale
        yield f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{foot:.1f}"/>'
        anchor = "middle" if second else "start"
        yield _text(x, foot + 17, f"{second} s", "small", anchor)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    place = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(words)}</text>"


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    size = f'width="{max(width, 0.5):.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>'


def _legend(y: float) -> Sequence[str]:
    parts, x = list[str](), float(EDGE)
    for kind, words in (
        ("waits", "until the first token"),
        ("voice", ""),
        ("chat", ""),
        ("nightly", "first to last token"),
        ("no", "told no (429, 408)"),
    ):
        parts.append(_box(kind, x, y - 10, 14, 10))
        x += 18
        if words:
            parts.append(_text(x + 2, y, words, "small"))
            x += 14 + 8.4 * len(words)
    return parts
