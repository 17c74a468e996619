"""The tables of servers measured from outside, cell by cell, for the terminal and the page."""

from collections.abc import Callable, Sequence
from statistics import median_low

from headway.core.request import NEVER
from headway.figures.client_figures import METRICS, ClientLane, Latency
from headway.figures.intervals.block_bootstrap import Interval
from headway.report.analysis import Analysis
from headway.report.formatting import NOT_SAID, milliseconds, per_second, share
from headway.report.page.page_tables import quantile, spread_of

Table = tuple[list[str], list[list[str]]]  # its head, and its rows

HEADS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
LATENCY = ["n", "p50", "p95", "p99", "p99.9", "max", "mean"]
BUDGETS = ["n", "good", "in budget", "90 % interval", "good/s", "90 % interval"]
THROUGHPUT = ["s", "served", "not served", "req/s", "input tok/s", "output tok/s", "total tok/s"]
WRONG = "what went wrong"
CLIENT = ["lag p50", "lag p99", "lag max", "cores", "left", "retried", "attempts", "short"]


def latency(found: Analysis, lane: str, ranges: bool) -> Table:
    """Latency in ms, a row for each metric and server. ranges: with intervals of p50 and p95."""
    rows = []
    figures = {name: found.client(name, lane) for name in found.strategies}
    for metric in METRICS:
        for name in found.strategies:
            runs = [each.latency[metric] for each in figures[name]]
            rows.append([HEADS[metric], found.title(name), *_latency_cells(runs, ranges)])
    return ["metric", found.noun, *LATENCY], rows


def _latency_cells(runs: Sequence[Latency], ranges: bool) -> list[str]:
    cells = [f"{runs[0].count:,}"]
    for at in range(len(runs[0].quantiles)):
        text = quantile([each.quantiles[at] for each in runs])
        if ranges and at < len(runs[0].sure) and len(runs) == 1:
            text += _range(runs[0].sure[at])
        cells.append(text)
    cells.append(quantile([each.most for each in runs]))
    cells.append(spread_of([each.mean for each in runs], _mean))
    return cells


def _mean(value: float) -> str:
    return milliseconds(round(value)) if value else NOT_SAID


def _range(sure: Interval) -> str:
    if sure.is_empty:
        return ""
    return f" ({_time(sure.low)}..{_time(sure.high)})"


def _time(value: float) -> str:
    return milliseconds(NEVER if value >= NEVER else round(value))


def budgets(found: Analysis) -> Table:
    """Each endpoint's share in budget and good requests per second, by server."""
    rows = []
    for lane in found.lanes:
        for name in found.strategies:
            runs, kept = found.client(name, lane), found.latency[name][lane]
            good = [each.good for each in kept]
            row = [lane, found.title(name), f"{kept[0].offered:,}", f"{median_low(good):,.0f}"]
            if not kept[0].offered:
                rows.append([*row, *[NOT_SAID] * 4])
                continue
            row.append(spread_of([each.attainment for each in kept], share))
            row.append(_interval([each.attainment for each in runs], share))
            row.append(spread_of(found.goodput(name, lane), per_second))
            row.append(_interval([each.goodput for each in runs], per_second))
            rows.append(row)
    return ["endpoint", found.noun, *BUDGETS], rows


def _interval(each: Sequence[Interval], words: Callable[[float], str]) -> str:
    """The first run's interval. The cell beside it has the spread of several runs."""
    first = each[0]
    return NOT_SAID if first.is_empty else f"{words(first.low)} to {words(first.high)}"


def throughput(found: Analysis) -> Table:
    """Requests and tokens per second. Throughput and latency never share a table."""
    rows = []
    for name in found.strategies:
        engine, totals = found.engine[name], found.totals(name)
        rows.append(
            [
                found.title(name),
                spread_of([each.seconds for each in engine], "{:.1f}".format),
                spread_of([each.served for each in engine], "{:,.0f}".format),
                spread_of([each.unserved for each in engine], "{:,.0f}".format),
                spread_of([each.requests_per_second for each in engine], per_second),
                spread_of([each.input_tokens_per_second for each in totals], "{:,.0f}".format),
                spread_of([each.output_tokens_per_second for each in totals], "{:,.0f}".format),
                spread_of([each.tokens_per_second for each in totals], "{:,.0f}".format),
            ]
        )
    return [found.noun, *THROUGHPUT], rows


def client(found: Analysis) -> Table:
    """The client's own lag in ms, and what its callers did."""
    rows = []
    for name in found.strategies:
        totals, lanes = found.totals(name), [found.client(name, lane) for lane in found.lanes]
        cores = [each["cores"] for each in found.report.about["clients"].get(name, ())]
        rows.append(
            [
                found.title(name),
                quantile([each.lag[0] for each in totals]),
                quantile([each.lag[2] for each in totals]),
                quantile([each.most_lag for each in totals]),
                spread_of(cores, "{:.2f}".format),
                *[_sum(lanes, count) for count in ("left", "retried", "attempts", "short")],
            ]
        )
    return [found.noun, *CLIENT], rows


def _sum(lanes: Sequence[Sequence[ClientLane]], count: str) -> str:
    """Format a count summed over the lanes of each run."""
    sums = [sum(getattr(each, count) for each in runs) for runs in zip(*lanes, strict=True)]
    return spread_of(sums, "{:,.0f}".format)


def errors(found: Analysis) -> Table:
    """The kinds of errors and how often each came, over all repeats."""
    rows = []
    for name in found.strategies:
        for lane in found.lanes:
            counts = dict[str, int]()
            for each in found.client(name, lane):
                for what, count in each.errors:
                    counts[what] = counts.get(what, 0) + count
            rows += [
                [found.title(name), lane, what, f"{count:,}"] for what, count in counts.items()
            ]
    return [found.noun, "endpoint", WRONG, "requests"], rows
