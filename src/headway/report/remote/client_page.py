"""The sections of report.html for servers that were measured from outside."""

from html import escape

from headway.core.lane import Budget
from headway.report.analysis import Analysis
from headway.report.page import html_parts, page_charts, page_tables
from headway.report.page.page_tables import METRICS
from headway.report.remote import client_description, client_tables

NOTES = (
    "Milliseconds from the scheduled arrival, warm-up excluded. In brackets: 90 % intervals, from "
    "blocks of time that are drawn again. TTFT: first text. TPOT: mean time per token after it. "
    "ITL: each gap between two pieces of text. E2E: the end. -: too few (p50 needs 10, p95 100, "
    "p99 500, p99.9 5,000). never: not within the run. The mean is of what came.",
    "n: requests offered after the warm-up, without callers that were made to leave. In budget: "
    "the share of n that ended inside every limit; refused, failed and unfinished ones count "
    "against it. Its interval is by blocks, too; of all or of none by Clopper and Pearson.",
    "s: seconds from the warm-up's end to the last answer's end, and at least to the window's; to "
    "wait for requests that were cut off is not in them. Everything per second is of what ended. "
    "Served and not served add up to n. Input tokens are those of served requests.",
    "Lag: from the scheduled arrival until the client began to send the request; to open a "
    "connection counts as latency. cores: of the processor, used by the client; it can use one. "
    "left: callers made to leave. retried: requests with more than one of the attempts. short: "
    "answers with fewer tokens than were asked for.",
)


def sections(found: Analysis, series: dict[str, str], shown: list[str]) -> list[str]:
    """The sections after the verdict."""
    return [
        _budgets(found),
        *[_endpoint(found, lane, series, shown) for lane in found.lanes],
        _throughput(found),
        _client(found),
        _what_was_run(found),
    ]


def _budgets(found: Analysis) -> str:
    table = html_parts.table("budgets", *client_tables.budgets(found), words=2)
    return f'<section id="budgets"><h2>Budgets</h2>{table}<p class="note">{NOTES[1]}</p></section>'


def _endpoint(found: Analysis, lane: str, series: dict[str, str], shown: list[str]) -> str:
    table = page_tables.said_only(client_tables.latency(found, lane, ranges=True))
    charts = "".join(
        f"<figure>{page_charts.distribution(found, lane, metric, series)}<figcaption>"
        f"{METRICS[metric]} of {escape(lane)}</figcaption></figure>"
        for metric in ("ttft", "tpot", "e2e")
    )
    free = found.report.lanes[lane].budget == Budget()
    no_limit = " No budget: everyone who is served is in it." if free else ""
    note = NOTES[0] if lane == found.lanes[0] else ""
    return (
        f'<section id="lane-{escape(lane)}"><h2>Latency of {escape(lane)}</h2>'
        f"{html_parts.table(f'latency-{lane}', *table, words=2)}"
        f'<p class="note">{note}{no_limit}</p>{html_parts.legend(series, shown)}'
        f'<div class="charts">{charts}</div></section>'
    )


def _throughput(found: Analysis) -> str:
    table = html_parts.table("throughput", *client_tables.throughput(found))
    return (
        f'<section id="throughput"><h2>Throughput</h2>{table}<p class="note">{NOTES[2]}</p>'
        "</section>"
    )


def _client(found: Analysis) -> str:
    table, errors = client_tables.client(found), client_tables.errors(found)
    wrong = html_parts.table("errors", *errors, words=3) if errors[1] else ""
    return (
        f'<section id="client"><h2>The client</h2>{html_parts.table("client", *table)}'
        f'<p class="note">{NOTES[3]}</p>{wrong}</section>'
    )


def _what_was_run(found: Analysis) -> str:
    stated = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in client_description.stated(found)
    )
    endpoints = html_parts.table("endpoints", *page_tables.endpoints(found), words=3)
    return (
        f'<section id="run"><h2>What was run</h2><dl class="facts">{stated}</dl>'
        f"<h3>Endpoints</h3>{endpoints}</section>"
    )
