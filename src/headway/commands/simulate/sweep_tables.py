"""The tables of sweep.html: capacities, latency by endpoint, throughput."""

from headway.commands.simulate.sweep_report import SweepJson, repeats, times
from headway.commands.simulate.sweep_verdict import machine_seconds, ranked, worst
from headway.report.formatting import NOT_SAID, figures, share
from headway.report.page.page_tables import quantile, spread_of

Table = tuple[list[str], list[list[str]]]  # head, rows

LATENCY = [
    *("strategy", "at", "n", "TTFT p50", "p95", "p99", "TPOT p50", "p95", "p99"),
    *("in budget", "good/s"),
]
THROUGHPUT = [
    *("strategy", "at", "offered/s", "served", "not served", "s", "req/s", "output tok/s"),
    *("slots used", "busy", "KV mean", "KV peak"),
]


def capacities(sweep: SweepJson) -> Table:
    """A row per strategy, the cheapest first: its capacity, and the knee of each endpoint.

    Without capacities: the worst endpoint's share in budget at each value of the sweep.
    """
    if not sweep["capacity"]:
        return _shares(sweep)
    lanes = sweep["lanes"] if sweep["knees"] else []
    rows = []
    for name in ranked(sweep):
        found, knees = sweep["capacity"].get(name), sweep["knees"].get(name, {})
        text = found["said"] if found else "not looked for"
        seconds = machine_seconds(sweep, name)
        cost = NOT_SAID if seconds is None else figures(seconds)
        marks = [NOT_SAID if knees[lane] is None else figures(knees[lane]) for lane in lanes]
        rows.append([name, text, cost, *marks])
    return [
        "strategy",
        "capacity",
        "machine-s/request",
        *[f"knee of {lane}" for lane in lanes],
    ], rows


def _shares(sweep: SweepJson) -> Table:
    values = [point["value"] for point in sweep["points"]]
    rows = []
    for name in ranked(sweep):
        found = dict(worst(sweep, name))
        cells = [share(found[value]) if value in found else NOT_SAID for value in values]
        rows.append([name, "worst endpoint in budget", *cells])
    return ["strategy", "", *[f"{value:g}" for value in values]], rows


def latency(sweep: SweepJson, lane: str) -> Table:
    """A row for each strategy and value, with the median and range of the repeats."""
    rows = []
    for name in sweep["strategies"]:
        for point in sweep["points"]:
            found = [each["lanes"][lane] for each in repeats(point, name)]
            quantiles = [
                quantile(times(point, name, lane, f"{metric}_p{percent}"))
                for metric in ("ttft", "tpot")
                for percent in (50, 95, 99)
            ]
            offered = found[0]["offered"]
            kept = spread_of([each["attainment"] for each in found], share) if offered else NOT_SAID
            rows.append(
                [
                    *(name, f"{point['value']:g}", f"{offered:,}", *quantiles),
                    kept if offered else NOT_SAID,
                    spread_of([each["goodput"] for each in found], "{:.2f}".format),
                ]
            )
    return LATENCY, rows


def throughput(sweep: SweepJson) -> Table:
    """A row for each strategy and value, over all endpoints."""
    rows = []
    for name in sweep["strategies"]:
        for point in sweep["points"]:
            found = repeats(point, name)
            engine = [each["engine"] for each in found]
            rows.append(
                [
                    *(name, f"{point['value']:g}", f"{point['rate']:.2f}"),
                    *[
                        spread_of([e[k] for e in engine], "{:,.0f}".format)
                        for k in ("served", "unserved")
                    ],
                    spread_of([each["seconds"] for each in engine], "{:.1f}".format),
                    spread_of([each["requests_per_second"] for each in engine], "{:.2f}".format),
                    spread_of([each["tokens_per_second"] for each in engine], "{:,.0f}".format),
                    spread_of([each["slots"] for each in engine], "{:.1f}".format),
                    spread_of([each["busy"] for each in engine], share),
                    *[spread_of([e[k] for e in found], share) for k in ("kv_mean", "kv_peak")],
                ]
            )
    return THROUGHPUT, rows
