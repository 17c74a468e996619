"""sweep.html: one file that needs nothing else, made of sweep.json alone."""

from html import escape

from headway.commands.simulate import sweep_charts
from headway.commands.simulate.sweep_report import SweepJson, has_requests, repeats, times
from headway.figures.capacity_interval import BLOCKS, COVERED
from headway.report import html_parts
from headway.report.formatting import NOT_SAID, share
from headway.report.page_tables import quantile, spread_of
from headway.runs import provenance

Table = tuple[list[str], list[list[str]]]  # its head, and its rows

LATENCY = [
    *("strategy", "at", "n", "TTFT p50", "p95", "p99", "TPOT p50", "p95", "p99"),
    *("in budget", "good/s"),
]
THROUGHPUT = [
    *("strategy", "at", "offered/s", "served", "not served", "s", "req/s", "output tok/s"),
    *("slots used", "busy", "KV mean", "KV peak"),
]
NOTE = (
    "Milliseconds from the scheduled arrival; solid p95, dashed p50, a dot a simulation. n: "
    "requests offered after the warm-up. In budget: the share of them that ended inside every "
    "limit of their endpoint. good/s: requests inside it, over the seconds (s) of the throughput "
    "table. A large dot on TTFT p95 is its knee. -: fewer than five values lie beyond that "
    "percentile, or nobody was asked. never: not within the run. Neither is drawn."
)
AMOUNTS = (
    ("tokens_per_second", "output tokens / s", 0.0),
    ("requests_per_second", "answers / s", 0.0),
    ("busy", "share of time in a step", 1.0),
    ("kv_mean", "share of KV blocks in use", 1.0),
)


def page(sweep: SweepJson) -> str:
    """The whole document."""
    series = {name: f"s{number}" for number, name in enumerate(sweep["strategies"])}
    on, points = html_parts.shown(sweep["strategies"]), sweep["points"]
    title = sweep["setting"].replace("_", " ") if points else "capacity"
    simulated = provenance.provenance_sentence(sweep["simulated"])
    sections = [_stated(sweep)]
    if sweep["capacity"]:
        sections.append(_capacity(sweep, series, on))
    if points:
        sections += [_lane(sweep, lane, series, on) for lane in sweep["lanes"]]
        sections.append(_throughput(sweep, series, on))
    unfinished = (
        "" if sweep["complete"] else '<p class="warning">Broken off: not all of it is here.</p>'
    )
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>headway simulate: {escape(title)}</title>"
            f"<style>{html_parts.asset('report.css')}"
            f"{html_parts.asset('sweep.css')}{html_parts.colours(series)}</style></head><body>"
            f"<header><h1>Latency, budgets and throughput against {escape(title)}</h1>"
            f'<p class="warning" id="simulated">{escape(simulated)}</p>'
            f"{unfinished}</header><main>",
            *sections,
            f"</main><script>{html_parts.asset('report.js')}</script></body></html>\n",
        ]
    )


def _stated(sweep: SweepJson) -> str:
    listed = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in facts(sweep))
    rules = sweep["points"][0]["rules"] if sweep["points"] else {}
    told = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in rules.items())
    strategies = f'<h3>Strategies</h3><dl class="facts">{told}</dl>' if told else ""
    return (
        f'<section id="run"><h2>What was run</h2><dl class="facts">{listed}</dl>{strategies}'
        "</section>"
    )


def facts(sweep: SweepJson) -> list[tuple[str, str]]:
    about = sweep["simulated"]
    values = ", ".join(f"{value:g}" for value in sweep["values"])
    other = ", of the same arrivals with other residuals of the steps"
    lines = [
        (
            "Model",
            f"{about['model']}, {about['dtype']} on {about['device']}, {about['threads']} threads",
        ),
        (
            "Memory",
            f"{sweep['num_blocks']:,} KV blocks of {sweep['block_size']} tokens; context "
            f"{sweep['context']:,} tokens",
        ),
        *provenance.facts(about),
        ("Traffic", f"{sweep['traffic']}; token counts divided by {sweep['token_scale']:g}"),
        (
            "Time",
            f"arrivals of the first {share(sweep['warm_up'])} of each simulation's time are served "
            f"and not counted; drained for {share(sweep['drain'])} more",
        ),
        ("Seed", str(sweep["seed"])),
        ("Repeats", f"{sweep['repeats']}{other if sweep['repeats'] > 1 else ''}"),
    ]
    if rates := [each["rate"] for each in sweep["points"]]:
        loads = [each["load"] for each in sweep["points"]]
        said = f"{_span(rates)} requests / s, {_span(loads)} device-seconds / s at full batches"
        lines.append(("Offered", said))
        counts = sorted({sum(each["offered"].values()) for each in sweep["points"]})
        many = len(sweep["points"]) > 1
        told = (
            f"the same {counts[0]:,} at every point, faster or slower" if many else f"{counts[0]:,}"
        )
        if len(counts) > 1:
            told = f"{counts[0]:,} to {counts[-1]:,}"
        lines.append(("Requests", told))
    if values:
        lines.append(("Swept", f"{sweep['setting'].replace('_', ' ')} ({sweep['unit']}): {values}"))
    if sweep["setting"] == "slots" and (most := max(sweep["values"])) > about["slots"]:
        said = f"its times were fitted up to {about['slots']} slots, not to {most:g}"
        lines.append(("Beyond the model", said))
        said = f"as much as they can use, of {sweep['fit']:,} blocks that fit"
        lines.append(("Memory of more slots", said))
    if ended := [f"{each['value']:g}" for each in sweep["points"] if each["trace_ends"]]:
        said = f"all of a trace is offered at {', '.join(ended)}: more --seconds add nothing to it"
        lines.append(("A trace ends", said))
    if alone := [f"{each['value']:g}" for each in sweep["points"] if not has_requests(each)]:
        said = f"nobody is left after the warm-up at {', '.join(alone)}, which no curve"
        lines.append(("Not asked", f"{said}, knee or capacity counts: take more --seconds"))
    return lines


def _span(values: list[float]) -> str:
    worst_endpoint_chart, most = f"{min(values):.3g}", f"{max(values):.3g}"
    return (
        worst_endpoint_chart
        if worst_endpoint_chart == most
        else f"{worst_endpoint_chart} to {most}"
    )


def _capacity(sweep: SweepJson, series: dict[str, str], on: list[str]) -> str:
    kept, within = share(sweep["share"]), share(sweep["tolerance"])
    knees = f" {escape(sweep['knee_rule'])}" if sweep["points"] else ""
    return (
        f'<section id="capacity"><h2>Capacity at {kept}</h2><p>The highest '
        f"{escape(sweep['setting'])} ({escape(sweep['unit'])}) at which every endpoint keeps "
        f"{kept} of its requests inside their budget, by bisection to {within}: what is named "
        "was kept, and a little more was not. n: requests of the endpoint that has fewest. The "
        f"interval holds {share(COVERED)} of the capacities that come of drawing the {BLOCKS} "
        "blocks of time, into which the requests fall, anew; it is of these requests, and other "
        f"traffic has its own.{knees}</p>"
        f"{html_parts.table('capacities', *capacities(sweep), words=2)}"
        f"{html_parts.legend(series, on)}"
        f'<div class="charts"><figure>{sweep_charts.worst_endpoint_chart(sweep, series)}'
        "<figcaption>The worst endpoint at every rate tried; a large dot is a capacity</figcaption>"
        "</figure></div>"
        "</section>"
    )


def capacities(sweep: SweepJson) -> Table:
    """By strategy; and the knee of each endpoint, where a sweep has one."""
    lanes = sweep["lanes"] if sweep["knees"] else []
    rows = []
    for name in sweep["strategies"]:
        found, knees = sweep["capacity"].get(name), sweep["knees"].get(name, {})
        said = found["said"] if found else "not looked for"
        marks = [NOT_SAID if knees[lane] is None else f"{knees[lane]:.3g}" for lane in lanes]
        rows.append([name, said, *marks])
    return ["strategy", "capacity", *[f"knee of {lane}" for lane in lanes]], rows


def _lane(sweep: SweepJson, lane: str, series: dict[str, str], on: list[str]) -> str:
    name = escape(lane)
    charts_drawn = [
        (
            sweep_charts.latency(sweep, lane, "ttft", series),
            f"TTFT of {name}{_limit(sweep, lane, 'ttft')}",
        ),
        (
            sweep_charts.latency(sweep, lane, "tpot", series),
            f"TPOT of {name}{_limit(sweep, lane, 'tpot')}",
        ),
        (
            sweep_charts.attainment(sweep, lane, series),
            f"Share of {name} inside its budget; the line: {share(sweep['share'])}",
        ),
    ]
    charts = "".join(f"<figure>{a}<figcaption>{b}</figcaption></figure>" for a, b in charts_drawn)
    note = f'<p class="note">{NOTE}</p>' if lane == sweep["lanes"][0] else ""
    return (
        f'<section id="lane-{name}"><h2>Latency of {name}</h2>{html_parts.legend(series, on)}'
        f'<div class="charts">{charts}</div>{note}<details><summary>All values</summary>'
        f"{html_parts.table(f'latency-{lane}', *latency(sweep, lane))}</details></section>"
    )


def _limit(sweep: SweepJson, lane: str, metric: str) -> str:
    limits = {point["budgets"][lane][metric] for point in sweep["points"]}
    if limits == {"never"}:
        return "; it has no limit"
    if len(limits) > 1:
        return "; its budget differs from point to point"
    return f"; the line: its budget, {limits.pop() / 1e6:.4g} ms"


def latency(sweep: SweepJson, lane: str) -> Table:
    """Every simulation. Of several repeats: the median, and from the least to the most."""
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


def _throughput(sweep: SweepJson, series: dict[str, str], on: list[str]) -> str:
    charts = "".join(
        f"<figure>{sweep_charts.engine_chart(sweep, name, label, series, most)}<figcaption>"
        f"{label[0].upper()}{label[1:]}</figcaption></figure>"
        for name, label, most in AMOUNTS
    )
    return (
        f'<section id="throughput"><h2>Throughput</h2>{html_parts.legend(series, on)}'
        f'<div class="charts">{charts}</div><p class="note">s: seconds from the warm-up\'s end '
        "to the end of the last step; everything per second is over these. Served and not served "
        "(refused, failed, late or cut off) add up to n of all endpoints.</p><details><summary>All "
        f"values</summary>{html_parts.table('throughput-values', *throughput(sweep))}</details>"
        "</section>"
    )


def throughput(sweep: SweepJson) -> Table:
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
