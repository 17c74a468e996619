"""sweep.html: the verdict, one chart, one table, then every curve. Made from sweep.json alone."""

from html import escape

from headway.commands.simulate import sweep_charts
from headway.commands.simulate.sweep_facts import facts
from headway.commands.simulate.sweep_report import SweepJson
from headway.commands.simulate.sweep_tables import capacities, latency, throughput
from headway.commands.simulate.sweep_verdict import ranked, verdict
from headway.figures.capacity_interval import BLOCKS, COVERED
from headway.report.formatting import share
from headway.report.page import html_parts
from headway.runs.provenance import provenance_sentence

NOTE = (
    "Milliseconds, counted from the scheduled arrival. Solid lines: p95, dashed: p50; a dot is one "
    "simulation. A large dot on TTFT p95 is the knee. n: requests offered after the warm-up. In "
    "budget: the share of n that ended inside every limit of the endpoint. good/s: such requests "
    "per second, over the seconds (s) of the throughput table. -: too few requests (p95 needs "
    "100), or none. never: not within the run. Neither is drawn."
)
AMOUNTS = (
    ("tokens_per_second", "output tokens / s", 0.0),
    ("requests_per_second", "answers / s", 0.0),
    ("busy", "share of time in a step", 1.0),
    ("kv_mean", "share of KV blocks in use", 1.0),
)


def page(sweep: SweepJson) -> str:
    """The whole document. Strategies are ordered as the verdict ranks them."""
    series = {name: f"s{number}" for number, name in enumerate(sweep["strategies"])}
    series = {name: series[name] for name in ranked(sweep)}
    on, points = html_parts.shown(sweep["strategies"]), sweep["points"]
    sections = [_verdict(sweep, series, on)]
    if points:
        sections += [_lane(sweep, lane, series, on) for lane in sweep["lanes"]]
        sections.append(_throughput(sweep, series, on))
    sections.append(_settings(sweep))
    return "".join([*_head(sweep, series), *sections, _foot()])


def _head(sweep: SweepJson, series: dict[str, str]) -> list[str]:
    title = sweep["setting"].replace("_", " ") if sweep["points"] else "capacity"
    question = f"against {title}" if sweep["points"] else f"and up to which {sweep['setting']}"
    simulated = provenance_sentence(sweep["simulated"])
    broken = '<p class="warning">Broken off: not all of it is here.</p>'
    answer = " ".join(verdict(sweep))
    return [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>headway simulate: {escape(title)}</title>"
        f"<style>{html_parts.asset('report.css')}"
        f"{html_parts.asset('sweep.css')}{html_parts.colours(series)}</style></head><body>"
        f"<header><h1>Which strategies keep every budget, {escape(question)}</h1>"
        f'<p id="verdict">{escape(answer)}</p>'
        f'<p class="warning" id="simulated">{escape(simulated)}</p>'
        f"{'' if sweep['complete'] else broken}</header><main>"
    ]


def _foot() -> str:
    return f"</main><script>{html_parts.asset('report.js')}</script></body></html>\n"


def _verdict(sweep: SweepJson, series: dict[str, str], on: list[str]) -> str:
    """One chart and one table, with the capacities if the sweep searched for them."""
    kept = share(sweep["share"])
    title = f"Capacity at {kept}" if sweep["capacity"] else f"Who keeps {kept} in budget"
    table = html_parts.table("capacities", *capacities(sweep), words=2)
    return (
        f'<section id="capacity"><h2>{title}</h2>{html_parts.legend(series, on)}'
        f'<figure class="first">{sweep_charts.worst_endpoint_chart(sweep, series)}'
        f"<figcaption>Share in budget of the worst endpoint; the line: {kept}"
        f"{'; a large dot is a capacity' if sweep['capacity'] else ''}</figcaption></figure>"
        f"{table}{_capacity_note(sweep) if sweep['capacity'] else ''}</section>"
    )


def _capacity_note(sweep: SweepJson) -> str:
    kept, within = share(sweep["share"]), share(sweep["tolerance"])
    knees = f" {escape(sweep['knee_rule'])}" if sweep["points"] else ""
    return (
        f'<p class="note">Capacity: the highest {escape(sweep["setting"])} '
        f"({escape(sweep['unit'])}) at which every endpoint keeps {kept} of its requests inside "
        f"their budget, found by bisection to {within}. n: requests of the endpoint that has "
        f"fewest. The interval holds {share(COVERED)} of the capacities found when the {BLOCKS} "
        "blocks of time that the requests fall into are drawn again, with replacement. It is about "
        f"these requests; other traffic has another.{knees}</p>"
    )


def _lane(sweep: SweepJson, lane: str, series: dict[str, str], on: list[str]) -> str:
    name, line = escape(lane), share(sweep["share"])
    drawn = [
        (sweep_charts.latency(sweep, lane, metric, series), f"{title} of {name}{limit}")
        for metric, title in sweep_charts.NAMES.items()
        for limit in [_limit(sweep, lane, metric)]
    ]
    budget = sweep_charts.attainment(sweep, lane, series)
    drawn.append((budget, f"Share of {name} inside its budget; the line: {line}"))
    charts = "".join(f"<figure>{a}<figcaption>{b}</figcaption></figure>" for a, b in drawn)
    note = f'<p class="note">{NOTE}</p>' if lane == sweep["lanes"][0] else ""
    return (
        f'<section id="lane-{name}"><h2>Latency of {name}</h2>{html_parts.legend(series, on)}'
        f'<div class="charts">{charts}</div>{note}<details><summary>All values</summary>'
        f"{html_parts.table(f'latency-{lane}', *latency(sweep, lane))}</details></section>"
    )


def _limit(sweep: SweepJson, lane: str, metric: str) -> str:
    limits = {point["budgets"][lane][metric] for point in sweep["points"]}
    if limits == {"never"}:
        return "; no limit"
    if len(limits) > 1:
        return "; its budget differs from point to point"
    return f"; the line: its budget, {limits.pop() / 1e6:.4g} ms"


def _throughput(sweep: SweepJson, series: dict[str, str], on: list[str]) -> str:
    charts = "".join(
        f"<figure>{sweep_charts.engine_chart(sweep, name, label, series, most)}<figcaption>"
        f"{label[0].upper()}{label[1:]}</figcaption></figure>"
        for name, label, most in AMOUNTS
    )
    values = html_parts.table("throughput-values", *throughput(sweep))
    return (
        f'<section id="throughput"><h2>Throughput</h2>{html_parts.legend(series, on)}'
        f'<div class="charts">{charts}</div><p class="note">s: seconds from the end of the warm-up '
        "to the end of the last step; all per second is of what ended in these. Served and not "
        "served (refused, failed, late or cut off) add up to n of all endpoints.</p><details>"
        f"<summary>All values</summary>{values}</details>"
        "</section>"
    )


def _settings(sweep: SweepJson) -> str:
    listed = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in facts(sweep))
    rules = sweep["points"][0]["rules"] if sweep["points"] else {}
    ruled = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in rules.items())
    strategies = f'<h3>Strategies</h3><dl class="facts">{ruled}</dl>' if ruled else ""
    return (
        f'<section id="run"><h2>What was run</h2><dl class="facts">{listed}</dl>{strategies}'
        "</section>"
    )
