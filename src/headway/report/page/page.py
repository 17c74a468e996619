"""report.html: one self-contained file, made from report.json alone.

It opens with the verdict, a chart and a table; what was run comes last.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headway.core.lane import Budget
from headway.report import run_description
from headway.report.analysis import Analysis, Comparison
from headway.report.page import (
    first_screen,
    gantt,
    html_parts,
    page_charts,
    page_tables,
    rate_curves,
    time_charts,
)
from headway.report.remote import client_page
from headway.report.size_changes import size_changes
from headway.report.verdict import standings
from headway.strategies.registry import DYNAMIC_GLOBAL, DYNAMIC_LANES

OTHER_METRICS = ", the backlog's time, waste, or device time per answered token"
NOTES = (
    "n: requests offered after the warm-up. In budget: the share of n that ended inside every "
    "limit of the endpoint; late, failed and unfinished ones count against it. Milliseconds, from "
    "the scheduled arrival. -: too few requests (p50 needs 10, p90 50, p95 100, p99 500). TPOT "
    "counts answers of two tokens or more that came one by one. never: not within the run. good/s: "
    "requests inside their budget that ended in the seconds (s) of the throughput table.",
    "Served and not served (refused, failed, late or cut off) add up to n. s: seconds from the "
    "warm-up's end to the end of the last step; everything per second, and every cost, is of what "
    "ended in these. Slots used: requests computed for in a step, mean over the steps' time. Busy: "
    "share of the seconds in which a step ran. Device ms / token: the time of all steps over the "
    "answered tokens. Cost counts all seconds, idle or not, at the price below.",
    "Padding, held (slots of answers that had ended while their group ran on), discarded (sampled "
    "past an answer's end) and recomputed (after a preemption) are shares of all tokens computed. "
    "KV: share of the blocks in use, mean over the steps' time and largest after a step. Prefix "
    "hits: share of the prompts' tokens that the cache had.",
)
PROMISES = (
    "Times promised at admission. Error p50: half of the n first tokens came nearer to the "
    "promise, before or after it, in milliseconds; of TTFT: that over the wait. Kept: the share of "
    "the answers that ended by the time promised; 90 % are to."
)


def page(found: Analysis) -> str:
    """The whole document."""
    series = {name: f"s{number}" for number, name in enumerate(found.strategies)}
    about = found.report.about
    sections = [first_screen.answer(found)]
    if not found.is_remote:
        sections += [
            _comparisons(found),
            time_charts.section(found, series, shown(found)),
            gantt.section(found),
            *[_endpoint(found, lane, series) for lane in found.lanes],
            _throughput(found),
            _sizes(found),
            _batches(found),
            _what_was_run(found),
        ]
    else:
        sections += [_comparisons(found)] if len(found.strategies) > 1 else []
        sections += rate_curves.sections(found)
        sections += [time_charts.section(found, series, shown(found)), gantt.section(found)]
        sections += client_page.sections(found, series, shown(found))
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>headway {escape(about.get('command', 'compare'))}: "
            f"{escape(about['model']['name'])}</title>"
            f"<style>{html_parts.asset('report.css')}{html_parts.asset('gantt.css')}"
            f"{html_parts.colours(series)}</style>"
            "<noscript><style>.legend input{display:none}</style></noscript></head><body>",
            first_screen.header(found),
            "<main>",
            *sections,
            f"</main><script>{html_parts.asset('report.js')}{gantt.scripts()}</script></body></html>\n",
        ]
    )


def _comparisons(found: Analysis) -> str:
    """What each strategy changes, grouped by whether it keeps every budget; each opens its card."""
    keeping = {each.strategy for each in standings(found) if each.keeps}
    first = [each for each in found.comparisons if _is_pair(each)]
    rest = [each for each in found.comparisons if not _is_pair(each)]
    groups = [
        ("", first),
        ("Keep every budget", [each for each in rest if each.name in keeping]),
        ("Do not keep every budget", [each for each in rest if each.name not in keeping]),
    ]
    rendered = "".join(_group(found, title, cards) for title, cards in groups if cards)
    empty = f"<p>Fewer than two {found.nouns} ran to their end: there is nothing to compare.</p>"
    return (
        f'<section id="pressure"><h2>What each {found.noun} relieves and creates</h2>'
        f'<p class="note">Against the baseline, {escape(found.baseline)}: the largest gain and the '
        "largest loss in any endpoint's time to the first token or time per token"
        f"{'' if found.is_remote else OTHER_METRICS}. Of the first repeat. A line opens to who "
        f"pays, what to watch and when to roll back.</p>{rendered or empty}</section>"
    )


def _is_pair(compared: Comparison) -> bool:
    return (compared.name, compared.other) == (DYNAMIC_GLOBAL, DYNAMIC_LANES)


def _group(found: Analysis, title: str, cards: Sequence[Comparison]) -> str:
    head = f"<h3>{title}</h3>" if title else ""
    return f'{head}<div class="cards">{"".join(_card(found, each) for each in cards)}</div>'


def _card(found: Analysis, compared: Comparison) -> str:
    lines = page_tables.card(found, compared)
    rows = "".join(
        f'<dt class="{name.split()[0].lower()}">{name}</dt><dd>{escape(text)}</dd>'
        for name, text in lines
    )
    is_pair, by_kind = _is_pair(compared), dict(lines)
    note = ""
    if is_pair:
        is_mistake = compared.card.created is not None
        word = "a common mistake" if is_mistake else "here that makes no great difference"
        note = f"<p>One window for all endpoints, against a window for each: {word}.</p>"
    brief = [
        f'<span class="{kind.lower()}">{escape(_brief(by_kind[kind]))}</span>'
        for kind in ("Relieved", "Created")
    ]
    against = f" <small>against {escape(compared.other)}</small>" if is_pair else ""
    return (
        f'<details class="card"{" open" if is_pair else ""} '
        f'data-strategy="{escape(compared.name)}" data-other="{escape(compared.other)}">'
        f"<summary><b>{escape(compared.name)}{against}</b>{brief[0]}{brief[1]}</summary>"
        f"{note}<dl>{rows}</dl></details>"
    )


def _brief(text: str) -> str:
    """The name of the pressure, without the figures in brackets."""
    what = text.partition(" (")[0].rstrip(".")
    return "-" if what.startswith("Nothing") else what


def _endpoint(found: Analysis, lane: str, series: dict[str, str]) -> str:
    budget = found.report.lanes[lane].budget
    note = NOTES[0] if lane == found.lanes[0] else ""
    no_deadline = " No deadline: everyone who is served is in budget." if budget == Budget() else ""
    charts = "".join(
        f"<figure>{page_charts.distribution(found, lane, metric, series)}<figcaption>"
        f"{page_tables.METRICS[metric]} of {escape(lane)}</figcaption>"
        "</figure>"
        for metric in ("ttft", "tpot", "queue")
    )
    table = page_tables.said_only(page_tables.latency(found, lane))
    promised, promises = page_tables.promises(found, lane), ""
    if promised[1]:
        promises = html_parts.table(f"promises-{lane}", *promised)
        promises += f'<p class="note">{PROMISES if note else ""}</p>'
    return (
        f'<section id="lane-{escape(lane)}"><h2>Latency of {escape(lane)}</h2>'
        f"{html_parts.table(f'latency-{lane}', *table)}"
        f'<p class="note">{note}{no_deadline}</p>{promises}'
        f"{html_parts.legend(series, shown(found))}"
        f'<div class="charts">{charts}</div></section>'
    )


def shown(found: Analysis) -> list[str]:
    """The strategies whose lines are shown at first."""
    return html_parts.shown(found.strategies, found.baseline)


def _throughput(found: Analysis) -> str:
    return (
        '<section id="throughput"><h2>Throughput and cost</h2>'
        f"{html_parts.table('throughput', *page_tables.throughput(found))}"
        f'<p class="note">{NOTES[1]}</p></section>'
        '<section id="waste"><h2>Where the computing and the memory went</h2>'
        f"{html_parts.table('resources', *page_tables.resources(found))}"
        f'<p class="note">{NOTES[2]}</p></section>'
    )


def _sizes(found: Analysis) -> str:
    """The section on sizes that followed the load; empty if no size changed."""
    head, rows = size_changes(found.changes)
    if not rows:
        return ""
    return (
        '<section id="sizes"><h2>Sizes that followed the load</h2>'
        f"{html_parts.table('size-changes', head, rows, words=3)}"
        '<p class="note">From the beginning to the end of the first repeat, warm-up included. '
        "Windows are in milliseconds; slots and groups are requests. report.json has each change, "
        "its time and its reason.</p></section>"
    )


def _batches(found: Analysis) -> str:
    drawn = page_charts.compositions(found)
    over_time, times = _multiples(drawn), _multiples(page_charts.scatters(found))
    words = ("next tokens (decode rows)", "prompt tokens", "padding", "held slots")
    keys = "".join(
        f'<span class="k-{kind}"><i></i>{word}</span>'
        for kind, word in zip(page_charts.KINDS, words, strict=True)
    )
    return (
        '<section id="batches"><h2>What the batches were made of</h2><p class="note">Tokens '
        "computed per second (up) over the run's seconds (across), stacked by kind. All have the "
        f'same two axes.</p><p class="key">{keys}</p>{over_time}</section>'
        '<section id="steps"><h2>Step time against batch size</h2><p class="note">One dot a step: '
        "its milliseconds (up) and the tokens computed in it, padding and held slots included "
        "(across). All have the same two axes. In a step of next tokens alone the tokens are the "
        'size of the batch.</p><p class="key"><span class="k-decode"><i></i>next tokens only</span>'
        f'<span class="k-prompt"><i></i>with prompts</span></p>{times}</section>'
    )


def _multiples(charts: Mapping[str, str]) -> str:
    """Small charts of one kind, one per strategy."""
    rendered = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{chart}</figure>"
        for name, chart in charts.items()
    )
    return f'<div class="charts small">{rendered}</div>'


def _what_was_run(found: Analysis) -> str:
    stated = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in run_description.stated(found)
    )
    strategies = "".join(_strategy(each) for each in found.report.about.get("rules", []))
    endpoints = html_parts.table("endpoints", *page_tables.endpoints(found), words=3)
    return (
        f'<section id="run"><h2>What was run</h2><dl class="facts">{stated}</dl>'
        f'<h3>Endpoints</h3>{endpoints}<h3>Strategies</h3><div class="rules">{strategies}</div>'
        "</section>"
    )


def _strategy(each: dict[str, Any]) -> str:
    settings = escape(json.dumps(each["policies"], indent=1))
    return (
        f"<details><summary><b>{escape(each['name'])}</b> {escape(each['rule'])}</summary>"
        f"<pre>{settings}</pre></details>"
    )
