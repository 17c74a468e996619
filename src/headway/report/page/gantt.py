"""The section of the page that draws each step and request, and opens a request's row."""

from html import escape

from headway.report.analysis import Analysis
from headway.report.formatting import duration
from headway.report.page import gantt_rows
from headway.report.page.gantt_rows import Stretch
from headway.report.page.html_parts import asset
from headway.report.verdict import order

HOW = (
    "Drag to move, pinch or Ctrl + wheel to zoom; a click on a request opens its row. Keys: "
    "left and right move, + and - zoom, 0 shows all, up and down mark a request, Enter opens it, "
    "Escape closes it."
)
KEYS = (
    ("waiting", "waiting"),
    ("prompt", "from its first step to its first token"),
    ("decode", "next tokens"),
    ("preempted", "was preempted (the rows do not say when)"),
    ("missed", "outside its budget"),
)
CLIENT_KEYS = (("waiting", "until its first token"), ("decode", "next tokens"), KEYS[-1])
STRIP = (
    "The strip on top is the steps: as high as their batch, coloured by what they computed "
    "(next tokens, prompt tokens; yellow: padding and held slots)."
)


def section(found: Analysis) -> str:
    """The chart, which gantt.js moves and zooms, and the rows it draws."""
    stretch = gantt_rows.drawn_stretch(found)
    if not stretch.drawn:
        return ""
    together = gantt_rows.steps_together(found, stretch)
    strip, drawn = ("", CLIENT_KEYS) if found.is_remote else (STRIP, KEYS)
    title = "Requests" if found.is_remote else "Steps and requests"
    first = order(found)[0]
    options = "".join(
        f'<option value="{number}"{" selected" if name == first else ""}>'
        f"{escape(found.title(name))}</option>"
        for number, name in enumerate(found.strategies)
    )
    keys = "".join(f'<span class="g-{kind}"><i></i>{word}</span>' for kind, word in drawn)
    return (
        f'<section id="requests"><h2>{title}</h2>'
        f'<p class="note">{HOW} {strip} {bounded(found, stretch, together)}</p>'
        f'<p class="key">{keys}</p><div class="gantt-bar">'
        f'<label>{found.noun.capitalize()} <select id="gantt-run">{options}</select></label>'
        '<label>Request <input id="gantt-find" type="search" autocomplete="off"></label>'
        '<button type="button" data-zoom="2" aria-label="Zoom in">+</button>'
        '<button type="button" data-zoom="0.5" aria-label="Zoom out">\u2212</button>'
        '<button type="button" data-zoom="0">All</button></div>'
        '<div class="gantt" id="gantt" tabindex="0" role="application" '
        'aria-label="Steps and requests over time"><canvas></canvas><div></div></div>'
        '<div id="gantt-row" class="gantt-row" aria-live="polite" hidden></div>'
        '<noscript><p class="note">This chart needs JavaScript.</p></noscript>'
        '<script type="application/json" id="gantt-data">'
        f"{gantt_rows.gantt_json(found, stretch, together)}</script></section>"
    )


def scripts() -> str:
    """The scripts that draw the chart and describe a request's row."""
    return asset("gantt_rows.js") + asset("gantt_row.js") + asset("gantt.js")


def bounded(found: Analysis, stretch: Stretch, together: int) -> str:
    """Say which rows are drawn and why not all; if all are, name only the repeat."""
    said = ["Of the first repeat." if _repeats(found) else ""]
    if not stretch.is_whole:
        said.append(
            f"Drawn are {stretch.drawn:,} of {stretch.of:,} requests, those that arrived from "
            f"{duration(stretch.begin)} to {duration(stretch.end)}: more would make the page slow, "
            "and no other stretch of so many has more outside their budget. A request's row counts "
            "only requests that are drawn: it leaves out those that arrived before or after."
        )
    if together > 1:
        said.append(
            f"A mark of the strip is {together} steps: there are more than "
            f"{gantt_rows.MOST_STEPS:,}."
        )
    return " ".join(each for each in said if each)


def _repeats(found: Analysis) -> bool:
    return any(len(runs) > 1 for runs in found.report.runs.values())
