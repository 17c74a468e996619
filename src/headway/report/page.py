"""report.html: one file that needs nothing else, made of a report's rows alone."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from headway.core.lane import Budget
from headway.report import html_parts, page_charts, page_tables, run_description
from headway.report.analysis import Analysis, Comparison
from headway.runs.provenance import provenance_sentence
from headway.strategies.registry import DYNAMIC_GLOBAL, DYNAMIC_LANES

NOTES = (
    "n: requests offered after the warm-up. In budget: the share of them that ended inside every "
    "limit of their endpoint; late, failed and unfinished ones count against it. Times are counted "
    "from the scheduled arrival, in milliseconds. -: fewer than five values lie beyond that "
    "percentile; a request has a TPOT if it has two tokens or more and they did not come all at "
    "once, as they do where answers are held to the group's end. never: not within the run. "
    "good/s: requests inside their budget, over the seconds (s) of the throughput table.",
    "n: of all endpoints; served and not served (refused, failed, late or cut off) add up to it. "
    "s: seconds from the warm-up's end to the end of the last step. Everything per second, good/s "
    "too, is over these. Slots used: requests computed for in a step, mean over the steps' time. "
    "Busy: share of the seconds in which a step ran. Cost is of all these seconds, idle or not, at "
    "the price above.",
    "Padding, held (slots of answers that had ended while their group ran on), discarded (sampled "
    "past an answer's end) and recomputed (after a preemption) are shares of all tokens computed. "
    "KV: share of the blocks in use, mean over the steps' time and largest after a step. Prefix "
    "hits: share of the prompts' tokens that the cache had.",
)


def page(found: Analysis) -> str:
    """The whole document."""
    series = {name: f"s{number}" for number, name in enumerate(found.strategies)}
    about = found.report.about
    sections = [
        _what_was_run(found),
        _cards(found),
        *[_endpoint(found, lane, series) for lane in found.lanes],
        _throughput(found),
        _batches(found),
    ]
    broken = (
        ""
        if about.get("all_runs") and all(map(found.is_whole, found.strategies))
        else f'<p class="warning">Broken off: {_missing(found)}. What is here are the rows so far; '
        "percentiles of a run that was broken off count the missing requests as not served.</p>"
    )
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>headway {about.get('command', 'compare')}: "
            f"{escape(about['model']['name'])}</title>"
            f"<style>{html_parts.asset('report.css')}{html_parts.colours(series)}</style></head><body>"
            "<header><h1>What each batching strategy buys, and who pays</h1>"
            f"<p>{len(found.strategies)} strategies served the same requests on one engine: "
            f"{escape(about['model']['name'])}, seed {about['seed']}, headway "
            f"{escape(about['headway'])}.</p>{_simulated(about)}{broken}</header><main>",
            *sections,
            f"</main><script>{html_parts.asset('report.js')}</script></body></html>\n",
        ]
    )


def _simulated(about: Mapping[str, Any]) -> str:
    if "simulated" not in about:
        return ""
    return (
        f'<p class="warning" id="simulated">{escape(provenance_sentence(about["simulated"]))}</p>'
    )


def _missing(found: Analysis) -> str:
    planned = found.report.about.get("planned", [])
    never = [name for name in planned if name not in found.report.runs]
    half = [name for name in found.strategies if not found.is_whole(name)]
    parts = [f"{', '.join(half)} in mid-run"] if half else []
    parts += [f"{', '.join(never)} not run"] if never else []
    return escape("; ".join(parts) or "further repeats not run")


def _what_was_run(found: Analysis) -> str:
    stated = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>"
        for name, said in run_description.stated(found)
    )
    strategies = "".join(_strategy(each) for each in found.report.about.get("rules", []))
    return (
        f'<section id="run"><h2>What was run</h2><dl class="facts">{stated}</dl>'
        f"<h3>Endpoints</h3>{html_parts.table('endpoints', *page_tables.endpoints(found), words=3)}"
        f'<h3>Strategies</h3><div class="rules">{strategies}</div></section>'
    )


def _strategy(each: dict[str, Any]) -> str:
    settings = escape(json.dumps(each["policies"], indent=1))
    return (
        f"<details><summary><b>{escape(each['name'])}</b> {escape(each['rule'])}</summary>"
        f"<pre>{settings}</pre></details>"
    )


def _cards(found: Analysis) -> str:
    made = "".join(_card(found, each) for each in found.comparisons)
    empty = "<p>Fewer than two strategies ran to their end: there is nothing to compare.</p>"
    return (
        '<section id="pressure"><h2>Pressure cards</h2><p>What a strategy relieved and what it '
        "created: its largest gain and largest loss over every endpoint's first-token wait and "
        "time per token, the backlog's time, waste, and device time per answered token. All from "
        f'the rows of the first repeat.</p><div class="cards">{made or empty}</div></section>'
    )


def _card(found: Analysis, compared: Comparison) -> str:
    lines = "".join(
        f'<dt class="{name.split()[0].lower()}">{name}</dt><dd>{escape(said)}</dd>'
        for name, said in page_tables.card(found, compared)
    )
    is_pair = (compared.name, compared.other) == (DYNAMIC_GLOBAL, DYNAMIC_LANES)
    note = ""
    if is_pair:
        is_mistake = compared.card.created is not None
        told = "a common mistake" if is_mistake else "here that makes no great difference"
        note = f"<p>One window for all endpoints, against a window for each: {told}.</p>"
    return (
        f'<article class="card{" wide" if is_pair else ""}" data-strategy="{escape(compared.name)}"'
        f' data-other="{escape(compared.other)}"><h3>{escape(compared.name)} <small>against '
        f"{escape(compared.other)}</small></h3>{note}<dl>{lines}</dl></article>"
    )


def _endpoint(found: Analysis, lane: str, series: dict[str, str]) -> str:
    budget = found.report.lanes[lane].budget
    note = NOTES[0] if lane == found.lanes[0] else ""
    told = " No deadline: everyone who is served is in budget." if budget == Budget() else ""
    charts = "".join(
        f"<figure>{page_charts.distribution(found, lane, metric, series)}<figcaption>"
        f"{page_tables.METRICS[metric]} of {escape(lane)}</figcaption>"
        "</figure>"
        for metric in ("queue", "ttft", "tpot")
    )
    return (
        f'<section id="lane-{escape(lane)}"><h2>Latency of {escape(lane)}</h2>'
        f"{html_parts.table(f'latency-{lane}', *page_tables.latency(found, lane))}"
        f'<p class="note">{note}{told}</p>{html_parts.legend(series, shown(found))}'
        f'<div class="charts">{charts}</div></section>'
    )


def shown(found: Analysis) -> list[str]:
    """Strategies whose lines are on at the beginning."""
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


def _batches(found: Analysis) -> str:
    over_time, times = (
        "".join(
            f"<figure>{draw(found, name)}<figcaption>{escape(name)}</figcaption></figure>"
            for name in found.strategies
        )
        for draw in (page_charts.composition, page_charts.scatter)
    )
    keys = "".join(
        f'<span class="k-{kind}"><i></i>{words}</span>'
        for kind, words in zip(
            page_charts.KINDS,
            ("next tokens (decode rows)", "prompt tokens", "padding", "held slots"),
            strict=True,
        )
    )
    return (
        '<section id="batches"><h2>What the batches were made of</h2><p>Tokens computed per '
        "second, stacked by kind. Every strategy has its own scale: read the number on the axis."
        f'</p><p class="key">{keys}</p><div class="charts">{over_time}</div></section>'
        '<section id="steps"><h2>Step time against batch size</h2><p>One dot a step, padding and '
        "held slots included. For a step of next tokens alone, the tokens computed are the size of "
        'the batch.</p><p class="key"><span class="k-decode"><i></i>next tokens only</span>'
        '<span class="k-prompt"><i></i>with prompts</span></p>'
        f'<div class="charts">{times}</div></section>'
    )
