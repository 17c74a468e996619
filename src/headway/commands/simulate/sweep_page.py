"""sweep.html: one file that needs nothing else, made of sweep.json alone."""

from html import escape

from headway.commands.simulate import sweep_charts
from headway.commands.simulate.sweep_report import Plain, is_asked, repeats, times
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


def page(plain: Plain) -> str:
    """The whole document."""
    series = {name: f"s{number}" for number, name in enumerate(plain["strategies"])}
    on, points = html_parts.shown(plain["strategies"]), plain["points"]
    title = plain["setting"].replace("_", " ") if points else "capacity"
    simulated = provenance.sentence(plain["simulated"])
    sections = [_stated(plain)]
    if plain["capacity"]:
        sections.append(_capacity(plain, series, on))
    if points:
        sections += [_lane(plain, lane, series, on) for lane in plain["lanes"]]
        sections.append(_throughput(plain, series, on))
    unfinished = (
        "" if plain["complete"] else '<p class="warning">Broken off: not all of it is here.</p>'
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


def _stated(plain: Plain) -> str:
    facts = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in stated(plain))
    rules = plain["points"][0]["rules"] if plain["points"] else {}
    told = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in rules.items())
    strategies = f'<h3>Strategies</h3><dl class="facts">{told}</dl>' if told else ""
    return (
        f'<section id="run"><h2>What was run</h2><dl class="facts">{facts}</dl>{strategies}'
        "</section>"
    )


def stated(plain: Plain) -> list[tuple[str, str]]:
    about = plain["simulated"]
    values = ", ".join(f"{value:g}" for value in plain["values"])
    other = ", of the same arrivals with other residuals of the steps"
    lines = [
        (
            "Model",
            f"{about['model']}, {about['dtype']} on {about['device']}, {about['threads']} threads",
        ),
        (
            "Memory",
            f"{plain['num_blocks']:,} KV blocks of {plain['block_size']} tokens; context "
            f"{plain['context']:,} tokens",
        ),
        *provenance.facts(about),
        ("Traffic", f"{plain['traffic']}; token counts divided by {plain['token_scale']:g}"),
        (
            "Time",
            f"arrivals of the first {share(plain['warm_up'])} of each simulation's time are served "
            f"and not counted; drained for {share(plain['drain'])} more",
        ),
        ("Seed", str(plain["seed"])),
        ("Repeats", f"{plain['repeats']}{other if plain['repeats'] > 1 else ''}"),
    ]
    if rates := [each["rate"] for each in plain["points"]]:
        loads = [each["load"] for each in plain["points"]]
        said = f"{_span(rates)} requests / s, {_span(loads)} device-seconds / s at full batches"
        lines.append(("Offered", said))
        counts = sorted({sum(each["offered"].values()) for each in plain["points"]})
        many = len(plain["points"]) > 1
        told = (
            f"the same {counts[0]:,} at every point, faster or slower" if many else f"{counts[0]:,}"
        )
        if len(counts) > 1:
            told = f"{counts[0]:,} to {counts[-1]:,}"
        lines.append(("Requests", told))
    if values:
        lines.append(("Swept", f"{plain['setting'].replace('_', ' ')} ({plain['unit']}): {values}"))
    if plain["setting"] == "slots" and (most := max(plain["values"])) > about["slots"]:
        said = f"its times were fitted up to {about['slots']} slots, not to {most:g}"
        lines.append(("Beyond the model", said))
        said = f"as much as they can use, of {plain['fit']:,} blocks that fit"
        lines.append(("Memory of more slots", said))
    if ended := [f"{each['value']:g}" for each in plain["points"] if each["trace_ends"]]:
        said = f"all of a trace is offered at {', '.join(ended)}: more --seconds add nothing to it"
        lines.append(("A trace ends", said))
    if alone := [f"{each['value']:g}" for each in plain["points"] if not is_asked(each)]:
        said = f"nobody is left after the warm-up at {', '.join(alone)}, which no curve"
        lines.append(("Not asked", f"{said}, knee or capacity counts: take more --seconds"))
    return lines


def _span(values: list[float]) -> str:
    least, most = f"{min(values):.3g}", f"{max(values):.3g}"
    return least if least == most else f"{least} to {most}"


def _capacity(plain: Plain, series: dict[str, str], on: list[str]) -> str:
    kept, within = share(plain["share"]), share(plain["tolerance"])
    knees = f" {escape(plain['knee_rule'])}" if plain["points"] else ""
    return (
        f'<section id="capacity"><h2>Capacity at {kept}</h2><p>The highest '
        f"{escape(plain['setting'])} ({escape(plain['unit'])}) at which every endpoint keeps "
        f"{kept} of its requests inside their budget, by bisection to {within}: what is named "
        "was kept, and a little more was not. n: requests of the endpoint that has fewest. The "
        f"interval holds {share(COVERED)} of the capacities that come of drawing the {BLOCKS} "
        "blocks of time, into which the requests fall, anew; it is of these requests, and other "
        f"traffic has its own.{knees}</p>"
        f"{html_parts.table('capacities', *capacities(plain), words=2)}"
        f"{html_parts.legend(series, on)}"
        f'<div class="charts"><figure>{sweep_charts.least(plain, series)}<figcaption>The worst '
        "endpoint at every rate tried; a large dot is a capacity</figcaption></figure></div>"
        "</section>"
    )


def capacities(plain: Plain) -> Table:
    """By strategy; and the knee of each endpoint, where a sweep has one."""
    lanes = plain["lanes"] if plain["knees"] else []
    rows = []
    for name in plain["strategies"]:
        found, knees = plain["capacity"].get(name), plain["knees"].get(name, {})
        said = found["said"] if found else "not looked for"
        marks = [NOT_SAID if knees[lane] is None else f"{knees[lane]:.3g}" for lane in lanes]
        rows.append([name, said, *marks])
    return ["strategy", "capacity", *[f"knee of {lane}" for lane in lanes]], rows


def _lane(plain: Plain, lane: str, series: dict[str, str], on: list[str]) -> str:
    name = escape(lane)
    drawn = [
        (
            sweep_charts.latency(plain, lane, "ttft", series),
            f"TTFT of {name}{_limit(plain, lane, 'ttft')}",
        ),
        (
            sweep_charts.latency(plain, lane, "tpot", series),
            f"TPOT of {name}{_limit(plain, lane, 'tpot')}",
        ),
        (
            sweep_charts.attainment(plain, lane, series),
            f"Share of {name} inside its budget; the line: {share(plain['share'])}",
        ),
    ]
    charts = "".join(f"<figure>{a}<figcaption>{b}</figcaption></figure>" for a, b in drawn)
    note = f'<p class="note">{NOTE}</p>' if lane == plain["lanes"][0] else ""
    return (
        f'<section id="lane-{name}"><h2>Latency of {name}</h2>{html_parts.legend(series, on)}'
        f'<div class="charts">{charts}</div>{note}<details><summary>All values</summary>'
        f"{html_parts.table(f'latency-{lane}', *latency(plain, lane))}</details></section>"
    )


def _limit(plain: Plain, lane: str, metric: str) -> str:
    limits = {point["budgets"][lane][metric] for point in plain["points"]}
    if limits == {"never"}:
        return "; it has no limit"
    if len(limits) > 1:
        return "; its budget differs from point to point"
    return f"; the line: its budget, {limits.pop() / 1e6:.4g} ms"


def latency(plain: Plain, lane: str) -> Table:
    """Every simulation. Of several repeats: the median, and from the least to the most."""
    rows = []
    for name in plain["strategies"]:
        for point in plain["points"]:
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


def _throughput(plain: Plain, series: dict[str, str], on: list[str]) -> str:
    charts = "".join(
        f"<figure>{sweep_charts.amount(plain, name, label, series, most)}<figcaption>"
        f"{label[0].upper()}{label[1:]}</figcaption></figure>"
        for name, label, most in AMOUNTS
    )
    return (
        f'<section id="throughput"><h2>Throughput</h2>{html_parts.legend(series, on)}'
        f'<div class="charts">{charts}</div><p class="note">s: seconds from the warm-up\'s end '
        "to the end of the last step; everything per second is over these. Served and not served "
        "(refused, failed, late or cut off) add up to n of all endpoints.</p><details><summary>All "
        f"values</summary>{html_parts.table('throughput-values', *throughput(plain))}</details>"
        "</section>"
    )


def throughput(plain: Plain) -> Table:
    rows = []
    for name in plain["strategies"]:
        for point in plain["points"]:
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
