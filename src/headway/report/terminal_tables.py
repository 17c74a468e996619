"""The tables of a report, for a terminal of 80 columns or more."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.core.lane import Lane
from headway.core.ledger import SizeChange
from headway.core.request import NEVER
from headway.figures.engine_figures import EngineFigures
from headway.figures.lane_figures import LaneFigures
from headway.figures.percentile import MIN_BEYOND, Quantile
from headway.figures.promise_figures import PromiseFigures
from headway.figures.tenant_figures import TenantFigures
from headway.report.formatting import NOT_SAID, milliseconds, per_mille, per_second, share
from headway.report.size_changes import size_changes
from headway.traffic.endpoint import Endpoint, UnloadedLatency


def narrow_table(
    title: str, left: Iterable[str], right: Iterable[str], sentences: Collection[str] = ()
) -> Table:
    """A table with one space between columns, so that ten of them fit into 80 characters. A
    figure that is too long wraps and is never cut. sentences: columns at the left that wrap too."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        min_width=min(len(title), 80),  # or the title wraps at the table's width
    )
    for column in left:
        wraps = column in sentences
        table.add_column(column, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
    for column in right:
        table.add_column(column, justify="right", overflow="fold")
    return table


LIMITS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "queue": "queue"}
ALWAYS = ("ttft", "tpot")  # have a column even if no endpoint limits them


def endpoints_table(
    endpoints: Collection[Endpoint],
    lanes: Mapping[str, Lane],
    unloaded: Mapping[str, UnloadedLatency],
    offered: Mapping[str, int],
) -> Table:
    """The endpoints, with their number of requests and their limits. E2E and queue have a column if
    any endpoint limits them."""
    mine = {each.name: lanes[each.name].budget for each in endpoints}
    limits = [
        name
        for name in LIMITS
        if name in ALWAYS or any(getattr(budget, name) != NEVER for budget in mine.values())
    ]
    table = narrow_table(
        "Endpoints, and their budgets in ms: multiples of a request's latency alone",
        ("endpoint",),
        ("n", *[f"{LIMITS[name]} within" for name in limits]),
    )
    for endpoint in endpoints:
        alone, budget = unloaded.get(endpoint.name), mine[endpoint.name]
        said = [NOT_SAID] * len(limits)
        if alone is not None:
            said = [_limit(name, endpoint, alone, getattr(budget, name)) for name in limits]
        table.add_row(endpoint.name, str(offered[endpoint.name]), *said)
    return table


def _limit(name: str, endpoint: Endpoint, alone: UnloadedLatency, limit: int) -> str:
    if limit == NEVER:
        return NOT_SAID
    multiple = getattr(endpoint, name, 0.0)  # a queue limit is no multiple
    if not multiple:
        return milliseconds(limit)
    return f"{multiple:g} x {milliseconds(getattr(alone, name))} = {milliseconds(limit)}"


METRICS = ("queue", "ttft", "tpot")
Figures = Mapping[str, Mapping[str, LaneFigures]]  # by strategy and lane


def latency_table(figures: Figures, tail: int = 95) -> Table:
    """The latency table, grouped by endpoint. It leaves out endpoints without any percentile, and
    the tail's column if no row has one; `latency_notes` says so. It has no row if no endpoint has a
    percentile. tail: the higher percentile, 90, 95 or 99."""
    percents = _percents(figures, tail)
    heads = {"queue": "queue", "ttft": "TTFT", "tpot": "TPOT"}
    columns = [f"{heads[metric]} p{percent}" for metric in METRICS for percent in percents]
    table = narrow_table(
        "Latency in milliseconds, by endpoint and strategy",
        ("strategy",),
        ("n", *columns, "in budget"),
    )
    strategies = list(figures)
    lanes = [lane for lane in next(iter(figures.values())) if _has_times(figures, lane, tail)]
    for lane, strategy in product(lanes, strategies):
        if strategy == strategies[0]:
            table.add_row(f"{lane}:", style="bold")
        mine = figures[strategy][lane]
        table.add_row(
            strategy,
            str(mine.offered),
            *[milliseconds(value) for value in _quantiles(mine, percents)],
            share(mine.attainment) if mine.offered else NOT_SAID,
            end_section=strategy == strategies[-1] and lane != lanes[-1],
        )
    return table


def _quantiles(mine: LaneFigures, percents: Iterable[int]) -> list[Quantile]:
    return [getattr(mine, f"{metric}_p{percent}") for metric in METRICS for percent in percents]


def _has_times(figures: Figures, lane: str, tail: int) -> bool:
    """Whether any strategy has a percentile of this lane."""
    return any(
        value is not None
        for lanes in figures.values()
        for value in _quantiles(lanes[lane], (50, tail))
    )


def _percents(figures: Figures, tail: int) -> tuple[int, ...]:
    """The median, and the tail if at least one row has it."""
    every = [mine for lanes in figures.values() for mine in lanes.values()]
    is_known = any(value is not None for mine in every for value in _quantiles(mine, [tail]))
    return (50, tail) if is_known else (50,)


def latency_notes(figures: Figures, tail: int = 95) -> list[str]:
    """Explain what n and "in budget" count, and why percentiles, endpoints or the whole table are
    missing."""
    first = next(iter(figures.values()))
    absent = [
        f"{lane} (n {mine.offered})"
        for lane, mine in first.items()
        if not _has_times(figures, lane, tail)
    ]
    if len(absent) == len(first):
        return [
            f"No latency: p50 needs {2 * MIN_BEYOND} requests of an endpoint: {', '.join(absent)}."
        ]
    every = [mine for lanes in figures.values() for mine in lanes.values()]
    quantiles = [value for mine in every for value in _quantiles(mine, (50, tail))]
    note = (
        "n: requests offered after the warm-up. In budget: the share of n that ended inside every "
        "limit of its endpoint."
    )
    if None in quantiles:
        needs = MIN_BEYOND * 100 // (100 - tail)
        dash = "" if len(_percents(figures, tail)) == 1 else f" {NOT_SAID}: too few requests."
        note += (
            f"{dash} p50 needs {2 * MIN_BEYOND} requests, p{tail} {needs}; TPOT counts answers "
            "that came token by token."
        )
    if absent:
        note += f" Left out, with too few requests for any percentile: {', '.join(absent)}."
    if NEVER in quantiles:
        note += " never: not within the run."
    return [note]


def tenants_table(figures: Mapping[str, Mapping[str, Mapping[str, TenantFigures]]]) -> Table:
    """What each tenant got. figures: by strategy, endpoint and tenant."""
    heads = ("n", "tokens", "queue p50", "queue p95", "in budget")
    table = narrow_table(
        "Tenants, by endpoint and strategy; queue in ms", ("strategy", "tenant"), heads
    )
    lanes = next(iter(figures.values()))
    for lane in lanes:
        table.add_row(f"{lane}:", style="bold")
        for strategy, tenant in product(figures, lanes[lane]):
            if mine := figures[strategy][lane].get(tenant):
                queue = [milliseconds(value) for value in (mine.queue_p50, mine.queue_p95)]
                counts = str(mine.requests), f"{mine.tokens:,}"
                table.add_row(strategy, tenant, *counts, *queue, share(mine.attainment))
    return table


PROMISED = "Times promised at admission: 90 % of the ends are to be kept; error in ms"


def promises_table(figures: Mapping[str, PromiseFigures]) -> Table:
    """How well promises were kept. figures: over all endpoints, by strategy that promises."""
    heads = ("first tokens", "error p50", "of TTFT", "ends", "kept")
    table = narrow_table(PROMISED, ("strategy",), heads)
    for strategy, mine in figures.items():
        table.add_row(
            strategy,
            str(mine.firsts),
            milliseconds(mine.error_p50),
            per_mille(mine.error_share_p50),
            str(mine.ended),
            NOT_SAID if mine.coverage is None else share(mine.coverage),
        )
    return table


def engine_table(figures: Mapping[str, EngineFigures]) -> Table:
    """What the machine did. Throughput and latency never share a table."""
    table = narrow_table(
        "Throughput, and where the computing went",
        ("strategy",),
        (
            "s",
            "served",
            "not served",
            "req/s",
            "tok/s",
            "slots used",
            "busy",
            "held",
            "pad",
        ),
    )
    for strategy, mine in figures.items():
        table.add_row(
            strategy,
            f"{mine.seconds:.1f}",
            str(mine.served),
            str(mine.unserved),
            per_second(mine.requests_per_second, 1),
            f"{mine.tokens_per_second:,.0f}",
            f"{mine.slots:.1f}",
            share(mine.busy),
            share(mine.held),
            share(mine.padding),
        )
    return table


def sizes_table(changes: Mapping[str, Sequence[SizeChange]]) -> Table:
    """How load-following sizes changed in each strategy's first run. Windows are in ms."""
    head, rows = size_changes(changes)
    table = narrow_table("Sizes that followed the load", head[:3], head[3:])
    for row in rows:
        table.add_row(*row)
    return table


ENGINE_NOTE = (
    "Per second of s, from the warm-up's end to the last step's: what ended in it. Slots used: "
    "mean over the steps. Waste, as shares of all tokens computed: held (slots of finished "
    "answers) and pad (padding up to the longest prompt)."
)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print each note dimmed, on its own lines."""
    for note in notes:
        console.print(Text(note, style="dim"))
