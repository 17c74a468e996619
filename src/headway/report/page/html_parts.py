"""Parts that every report's page has: tables, legends, colours and assets."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import accumulate, cycle

from headway.strategies.registry import CHUNKED_PREFIX, DYNAMIC_GLOBAL, DYNAMIC_LANES, REGISTRY

SHOWN = 5  # how many lines are shown at first
LONG = 26  # letters of a row's name: a longer one is broken where it would hide the figures


def table(
    name: str,
    head: list[str],
    rows: Iterable[list[str]],
    words: int = 1,
    groups: Sequence[tuple[str, int]] = (),
) -> str:
    """An HTML table. words: how many columns at the left hold words; the rest hold numbers.
    groups: headings above the head, and how many columns each spans."""
    firsts = set(accumulate(span for _, span in groups))

    def kind(column: int, cell: str = "") -> str:
        kinds = ["words"] * (column < words) + ["first"] * (column in firsts)
        kinds += ["long"] * (not column and len(cell) > LONG)
        return f' class="{" ".join(kinds)}"' if kinds else ""

    above = "".join(f'<th colspan="{span}">{escape(heading)}</th>' for heading, span in groups)
    above = f'<tr class="groups">{above}</tr>' if above else ""
    top = "".join(f"<th{kind(k)}>{escape(cell)}</th>" for k, cell in enumerate(head))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind(k, cell)}>{_text(cell)}</td>" for k, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return (
        '<p class="cue">This table is wider than the screen: scroll it sideways.</p>'
        f'<div class="scroll" tabindex="0"><table id="{escape(name)}">'
        f"<thead>{above}<tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _text(cell: str) -> str:
    """A cell's text; an option of the command line is not broken after one of its hyphens."""
    return re.sub(r"--[a-z-]+", r'<span class="option">\g<0></span>', escape(cell))


HUES = (  # line colours in the registry's order: related strategies get related colours
    *("#7a8290", "#b45309", "#d98a1f", "#a38a00", "#7c3aed", "#c026d3", "#e0529c"),
    *("#1d4ed8", "#0ea5e9", "#0d9488", "#16a34a", "#65a30d", "#475569", "#dc2626", "#f97066"),
)


def colours(series: Mapping[str, str]) -> str:
    """CSS rules for the line colours. series: the CSS class of each strategy's lines."""
    known = dict(zip(REGISTRY, HUES, strict=False))
    taken = {known[name] for name in series if name in known}
    free = cycle([hue for hue in HUES[::-3] if hue not in taken] or HUES)
    return "".join(
        f".{kind}{{--c:{known[name] if name in known else next(free)}}}"
        for name, kind in series.items()
    )


def legend(series: Mapping[str, str], on: Collection[str]) -> str:
    """A checkbox per strategy, with which report.js shows or hides its lines."""
    boxes = "".join(
        f'<label class="{kind}"><input type="checkbox" data-series="{kind}"'
        f"{' checked' if name in on else ''}><i></i>{escape(name)}</label>"
        for name, kind in series.items()
    )
    return f'<fieldset class="legend"><legend>Lines</legend>{boxes}</fieldset>'


def shown(strategies: Sequence[str], baseline: str = "") -> list[str]:
    """The strategies shown at first: the baseline, some well-known ones, then those in order."""
    first = (
        baseline,
        DYNAMIC_GLOBAL,
        DYNAMIC_LANES,
        "continuous-prefill-first",
        f"{CHUNKED_PREFIX}64",
    )
    wanted = dict.fromkeys([*(n for n in first if n in strategies), *strategies])
    return list(wanted)[:SHOWN]


def asset(name: str) -> str:
    """The text of a file in report/assets."""
    return (files("headway") / "report" / "assets" / name).read_text(encoding="utf-8")
