"""What a report opens with: one sentence, one chart and one table, on the first screen."""

from collections.abc import Sequence
from html import escape

from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.report.analysis import Analysis
from headway.report.formatting import share
from headway.report.page import html_parts, page_charts, page_tables
from headway.report.remote.client_doubts import doubts
from headway.report.verdict import caution, limited, order, verdict
from headway.runs.provenance import provenance_sentence

ROWS = 5  # the most strategies in the first chart and table, the baseline among them
ACROSS = 4  # endpoints side by side in the first chart


def header(found: Analysis) -> str:
    """The verdict, the model and strategies it covers, and the doubts about it."""
    about = found.report.about
    many = len(found.strategies)
    served = f"1 {found.noun}" if many == 1 else f"{many} {found.nouns}{_shared(found)}"
    doubt = f'<p class="note">{escape(text)}</p>' if (text := caution(found)) else ""
    warning = ""
    if "simulated" in about:
        text = escape(provenance_sentence(about["simulated"]))
        warning = f'<p class="warning" id="simulated">{text}</p>'
    for text in doubts(found) if found.is_remote else ():
        warning += f'<p class="warning">{escape(text)}</p>'
    first, _, rest = verdict(found).replace(" %", "\u00a0%").partition(". ")
    lead = f'<p class="lead">{escape(rest)}</p>' if rest else ""
    return (
        f'<header><p class="eyebrow">headway {escape(about.get("command", "compare"))} · '
        f"{escape(about['model']['name'])} · {served}</p>"
        f"<h1>{escape(first)}{'.' if rest else ''}</h1>{lead}"
        f"{doubt}{warning}{_broken(found)}</header>"
    )


def _shared(found: Analysis) -> str:
    """Say that all served the same requests; empty if their number depended on the server."""
    about = found.report.about
    by_server = found.is_remote and (
        about["asked"]["callers"] or about["workload"].get("sessions", 0)
    )
    return "" if by_server else ", the same requests"


def _broken(found: Analysis) -> str:
    """What is missing because the run was broken off; empty if it is complete."""
    if found.report.about.get("all_runs") and all(map(found.is_whole, found.strategies)):
        return ""
    return (
        f'<p class="warning">Broken off: {_missing(found)}. What is here are the rows so far; '
        "percentiles of a run that was broken off count the missing requests as not served.</p>"
    )


def _missing(found: Analysis) -> str:
    planned = found.report.about.get("planned", [])
    never = [name for name in planned if name not in found.report.runs]
    half = [name for name in found.strategies if not found.is_whole(name)]
    parts = [f"{_listed(half)} in mid-run"] if half else []
    parts += [f"{_listed(never)} not run"] if never else []
    return escape("; ".join(parts) or "further repeats not run")


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many there are besides. Below, the page has them all."""
    more = len(names) - ROWS
    if more < 2:
        return ", ".join(names)
    return f"{', '.join(names[:ROWS])} and {more} more"


def first_names(found: Analysis) -> list[str]:
    """The strategies of the first chart and table: the best by the verdict, and the baseline."""
    names = order(found)
    if len(names) <= ROWS:
        return names
    first = names[:ROWS]
    return first if found.baseline in first else [*first[:-1], found.baseline]


def answer(found: Analysis) -> str:
    """One chart and one table; empty if no endpoint has a budget."""
    lanes = limited(found)
    if not lanes:
        return ""
    names, every = first_names(found), order(found)
    drawn = sorted(lanes, key=lambda lane: _least(found, names, lane))[:ACROSS]
    drawn = [lane for lane in lanes if lane in drawn]
    table = _table(found, "summary", names)
    figure = (
        f'<figure class="first"><div class="on-desk">'
        f'{page_charts.attainment(found, drawn, names, ACROSS)}</div><div class="on-phone">'
        f"{page_charts.least_kept(found, lanes, names)}</div><figcaption>Share of each "
        f'endpoint\'s requests inside its budget<span class="on-phone">, where it is least</span>; '
        f"the dashed line is {share(REQUIRED_ATTAINMENT)}.</figcaption></figure>"
    )
    is_cut = names != every or drawn != lanes
    rest = _everything(found, lanes, every, is_cut) if is_cut or len(lanes) > 1 else ""
    return f'<section id="verdict">{figure}{table}{_note(found)}{rest}</section>'


def _least(found: Analysis, names: Sequence[str], lane: str) -> float:
    return min(page_charts.kept_share(found, name, lane) for name in names)


def _table(found: Analysis, name: str, names: Sequence[str]) -> str:
    groups, table = page_tables.summary(found, names)
    return html_parts.table(name, *table, groups=groups)


def _note(found: Analysis) -> str:
    text = (
        f"A {found.noun} keeps every budget if it reaches the dashed line everywhere; those that "
        "do come first"
    )
    if not found.is_remote:
        text += ", the cheapest (least device time per answered token) at the top"
    text += (
        ". The times are milliseconds to the first token, from the scheduled arrival. -: too few "
        "requests (p50 needs 10, p90 50, p95 100). Intervals: blocks of time drawn again."
    )
    if len(found.strategies) > 1:
        text += f" Baseline: {escape(found.baseline)}."
    return f'<p class="note">{text}</p>'


def _everything(found: Analysis, lanes: Sequence[str], names: Sequence[str], on_desk: bool) -> str:
    """What the first chart and table leave out. on_desk: whether wide screens need it too."""
    chart = f'<div class="on-phone">{page_charts.attainment(found, lanes, names, 1)}</div>'
    table = ""
    if on_desk:
        wide = page_charts.attainment(found, lanes, names, ACROSS)
        chart = f'<div class="on-desk">{wide}</div>{chart}'
        table = _table(found, "summary-all", names)
    kind = "" if on_desk else ' class="on-phone"'
    title = f"All {len(names)} {found.nouns}, every endpoint" if on_desk else "Every endpoint"
    return f"<details{kind}><summary>{title}</summary><figure>{chart}</figure>{table}</details>"
