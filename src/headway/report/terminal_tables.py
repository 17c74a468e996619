"""The tables of a report, for a terminal of 80 columns or more."""

from collections.abc import Iterable, Mapping
from itertools import product

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.core.lane import Lane
from headway.core.request import NEVER
from headway.figures.lane_figures import MIN_BEYOND, EngineFigures, LaneFigures
from headway.report.formatting import NOT_SAID, milliseconds, share
from headway.traffic.endpoint import Endpoint, UnloadedLatency


def _table(title: str, left: Iterable[str], right: Iterable[str]) -> Table:
    """Columns stand one space apart, so that ten of them fit into 80. What is too long goes on
    below: no figure is ever cut."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    for column in left:
        table.add_column(column, no_wrap=True)
    for column in right:
        table.add_column(column, justify="right", overflow="fold")
    return table


def endpoints_table(
    endpoints: Iterable[Endpoint],
    lanes: Mapping[str, Lane],
    unloaded: Mapping[str, UnloadedLatency],
    offered: Mapping[str, int],
) -> Table:
    """Who asks, how many, and what each may be kept waiting."""
    table = _table(
        "Endpoints, and their budgets in ms: multiples of a request's latency alone",
        ("endpoint",),
        ("n", "TTFT within", "TPOT within"),
    )
    for endpoint in endpoints:
        name, budget = endpoint.name, lanes[endpoint.name].budget
        limits = [NOT_SAID, NOT_SAID]
        if name in unloaded:
            alone = unloaded[name]
            limits = [
                _limit(endpoint.ttft, alone.ttft, budget.ttft),
                _limit(endpoint.tpot, alone.tpot, budget.tpot),
            ]
        table.add_row(name, str(offered[name]), *limits)
    return table


def _limit(multiple: float, alone: int, limit: int) -> str:
    if limit == NEVER:
        return NOT_SAID
    if not multiple:
        return milliseconds(limit)
    return f"{multiple:g} x {milliseconds(alone)} = {milliseconds(limit)}"


def latency_table(figures: Mapping[str, Mapping[str, LaneFigures]], tail: int = 95) -> Table:
    """figures: by strategy and lane. Grouped by endpoint, whose name stands above, so that its
    strategies stand together. tail: the higher percentile, 90, 95 or 99."""
    table = _table(
        "Latency in milliseconds, by endpoint and strategy",
        ("strategy",),
        (
            "n",
            "queue p50",
            f"queue p{tail}",
            "TTFT p50",
            f"TTFT p{tail}",
            "TPOT p50",
            f"TPOT p{tail}",
            "in budget",
        ),
    )
    lanes, strategies = list(next(iter(figures.values()))), list(figures)
    for lane, strategy in product(lanes, strategies):
        if strategy == strategies[0]:
            table.add_row(f"{lane}:", style="bold")
        mine = figures[strategy][lane]
        times = [
            getattr(mine, f"{metric}_p{percent}")
            for metric in ("queue", "ttft", "tpot")
            for percent in (50, tail)
        ]
        table.add_row(
            strategy,
            str(mine.offered),
            *[milliseconds(value) for value in times],
            share(mine.attainment) if mine.offered else NOT_SAID,
            end_section=strategy == strategies[-1] and lane != lanes[-1],
        )
    return table


def latency_notes(figures: Mapping[str, Mapping[str, LaneFigures]], tail: int = 95) -> list[str]:
    """What n and a share in budget count, and why there are dashes and nevers, if there are."""
    quantiles = [
        getattr(mine, f"{metric}_p{percent}")
        for lanes in figures.values()
        for mine in lanes.values()
        for metric in ("queue", "ttft", "tpot")
        for percent in (50, tail)
    ]
    note = (
        "n: requests offered after the warm-up. In budget: the share of n that ended inside every "
        "limit of its endpoint."
    )
    if None in quantiles:
        needs = MIN_BEYOND * 100 // (100 - tail)
        note += (
            f" {NOT_SAID}: too few requests (p50 needs {2 * MIN_BEYOND}, p{tail} {needs}), or of "
            "TPOT too few answers that came token by token."
        )
    if NEVER in quantiles:
        note += " never: not within the run."
    return [note]


def engine_table(figures: Mapping[str, EngineFigures]) -> Table:
    """What the machine did: never in one table with latency."""
    table = _table(
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
            f"{mine.requests_per_second:.1f}",
            f"{mine.tokens_per_second:,.0f}",
            f"{mine.slots:.1f}",
            share(mine.busy),
            share(mine.held),
            share(mine.padding),
        )
    return table


ENGINE_NOTE = (
    "Per second of s: from the warm-up's end to the end of the last step. Slots used: mean over "
    "the steps. Waste, as shares of all tokens computed: held (slots of finished answers) and pad "
    "(padding up to the longest prompt)."
)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        console.print(Text(note, style="dim"))
