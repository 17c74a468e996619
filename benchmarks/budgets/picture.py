"""Curves of the share inside budget over the load, one panel for each mix: SVG."""

from collections.abc import Sequence
from html import escape

from benchmarks.budgets.ablation import Ablation
from headway.report.page.svg_chart import HEIGHT, WIDTH, Axis, Chart

TOP, FOOT, GAP = 52, 46, 12  # pixels around the panels
SERIES = {  # title: class, light, dark
    "first come": ("first", "#8a8f98", "#9aa0a8"),
    "queue timeout": ("timeout", "#e69f00", "#e6a91f"),
    "deadline order": ("order", "#0072b2", "#4ea8de"),
    "+ slack steps": ("slack", "#7b3fb5", "#b98ae6"),
    "+ relegation": ("relegation", "#d1495b", "#e0606f"),
    "budgets": ("budgets", "#009e73", "#2fc08e"),
}
STYLE = """
  .page { fill: #ffffff } text { font: 11px system-ui, sans-serif; fill: #57606a }
  .title { font-size: 15px; font-weight: 600; fill: #24292f } .name { font-weight: 600 }
  .grid { stroke: #d8dee4; stroke-width: .7; fill: none }
  .line { fill: none; stroke: var(--c); stroke-width: 1.9; stroke-linejoin: round }
  .dots { fill: none; stroke: var(--c); stroke-width: 5; stroke-linecap: round }
"""
DARK = """
    .page { fill: #14181d } text { fill: #9da7b1 } .title { fill: #e6edf3 }
    .grid { stroke: #30363d }
"""


def picture(found: Ablation) -> str:
    """The panels side by side, above a legend."""
    mixes = list(found.windows)
    width, height = len(mixes) * (WIDTH + GAP) + GAP, TOP + HEIGHT + FOOT
    title = "Requests inside their budget, by load"
    light = "".join(f"  .{name} {{ --c: {colour} }}\n" for name, colour, _ in SERIES.values())
    dark = "".join(f"    .{name} {{ --c: {colour} }}\n" for name, _, colour in SERIES.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img"><title>{escape(title)}</title>',
        f"<style>{STYLE}{light}  @media (prefers-color-scheme: dark) {{{DARK}{dark}  }}\n</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
        f'<text class="title" x="{GAP}" y="22">{escape(title)}</text>',
    ]
    for at, mix in enumerate(mixes):
        left = GAP + at * (WIDTH + GAP)
        parts.append(f'<text class="name" x="{left + 44}" y="{TOP - 6}">{escape(mix)} mix</text>')
        placed = f'<svg x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" '
        parts.append(panel(found, mix).replace("<svg ", placed, 1))
    return "\n".join([*parts, *_legend(TOP + HEIGHT + 26), "</svg>", ""])


def panel(found: Ablation, mix: str) -> str:
    loads: Sequence[float] = found.loads
    chart = Chart(
        f"{mix} mix: share inside budget by load",
        Axis(0, max(loads), "load"),
        Axis(0, 1, "share inside budget"),
    )
    for title, (name, *_) in SERIES.items():
        names = {load: found.name(mix, load, title) for load in loads}
        ran = {load: name for load, name in names.items() if name}
        if not ran:
            continue
        points = [(load, found.kept.share(mix, load, name)) for load, name in ran.items()]
        chart.line(points, name, title)
        chart.dots(points, name)
    return chart.draw("budgets-curve")


def _legend(y: int) -> list[str]:
    parts, x = list[str](), 56.0
    for title, (name, *_) in SERIES.items():
        parts.append(f'<path class="line {name}" d="M{x:.0f} {y - 4}h18"/>')
        parts.append(f'<text x="{x + 23:.0f}" y="{y}">{escape(title)}</text>')
        x += 42 + 6.2 * len(title)
    return parts
