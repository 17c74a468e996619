"""The tables of a report, for a terminal of 80 columns or more."""

from collections.abc import Iterable, Mapping
from itertools import product

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.core.lane import Lane
from headway.core.request import NEVER
from headway.figures.lane_figures import BEYOND, EngineFigures, LaneFigures
from headway.figures.pressure import Card
from headway.report.formatting import NOT_SAID, milliseconds, pressed, share
from headway.traffic.endpoint import Endpoint, Unloaded


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
    unloaded: Mapping[str, Unloaded],
    offered: Mapping[str, int],
) -> Table:
    """Who asks, how many, and what each may be kept waiting."""
    table = _table(
        "Endpoints, and their budgets as multiples of the unloaded latency (ms)",
        ("endpoint", "serves"),
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
        table.add_row(name, Text(endpoint.serves), str(offered[name]), *limits)
    table.columns[1].no_wrap = False
    return table


def _limit(multiple: float, alone: int, limit: int) -> str:
    if limit == NEVER:
        return NOT_SAID
    if not multiple:
        return milliseconds(limit)
    return f"{multiple:g} x {milliseconds(alone)} = {milliseconds(limit)}"


def latency_table(figures: Mapping[str, Mapping[str, LaneFigures]]) -> Table:
    """figures: by strategy and lane. Grouped by endpoint, whose name stands above, so that its
    strategies stand together."""
    table = _table(
        "Latency in milliseconds, by endpoint and strategy",
        ("strategy",),
        (
            "n",
            "queue p50",
            "queue p95",
            "TTFT p50",
            "TTFT p95",
            "TPOT p50",
            "TPOT p95",
            "in budget",
        ),
    )
    lanes, strategies = list(next(iter(figures.values()))), list(figures)
    for lane, strategy in product(lanes, strategies):
        if strategy == strategies[0]:
            table.add_row(f"{lane}:", style="bold")
        mine = figures[strategy][lane]
        pairs = (mine.queue_p50, mine.queue_p95, mine.ttft_p50, mine.ttft_p95)
        paces = (mine.tpot_p50, mine.tpot_p95)
        table.add_row(
            strategy,
            str(mine.offered),
            *[milliseconds(value) for value in (*pairs, *paces)],
            share(mine.attainment) if mine.offered else NOT_SAID,
            end_section=strategy == strategies[-1] and lane != lanes[-1],
        )
    return table


def latency_notes(figures: Mapping[str, Mapping[str, LaneFigures]]) -> list[str]:
    """Why there are dashes and nevers, where there are any."""
    all_figures = [mine for lanes in figures.values() for mine in lanes.values()]
    quantiles = [
        value
        for mine in all_figures
        for value in (mine.queue_p50, mine.queue_p95, mine.ttft_p50, mine.ttft_p95)
    ]
    paces = [value for mine in all_figures for value in (mine.tpot_p50, mine.tpot_p95)]
    notes = [
        "n: requests offered, after the warm-up if there is one. In budget: the share of them that "
        "ended inside every limit of their endpoint; late, failed and unfinished ones count "
        "against it."
    ]
    if None in quantiles + paces:
        notes.append(
            f"{NOT_SAID}: fewer than {BEYOND} values lie beyond that percentile, so it is not "
            "said. TPOT is only of requests with two tokens or more that do not come all at once."
        )
    if NEVER in quantiles:
        notes.append("never: not within the run's time limit.")
    return notes


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
    "Served and not served (refused, failed, late or cut off) add up to n of all endpoints. S: the "
    "seconds to the end of the last step, from the warm-up's end if there is one; req/s and tok/s "
    "are over these. Slots used: "
    "requests computed for in a step, mean over the steps' time. Busy: share of the seconds in "
    "which a step ran. Waste is the share of the computed tokens that were for nobody: held (slots "
    "of answers that had ended while their group ran on) and pad (padding: rows filled up to the "
    "longest)."
)


def print_cards(console: Console, cards: Mapping[str, Card]) -> None:
    console.print("[bold]Pressure: the largest gain and the largest loss against another strategy")
    for strategy, card in cards.items():
        line = Text.assemble((strategy, "bold"), " ", pressed(card), ".")
        console.print(line, soft_wrap=False)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        console.print(Text(note, style="dim"))
