"""The capacities that have a number, as a table on a terminal."""

from collections.abc import Mapping

from rich import box
from rich.table import Table

from headway.commands.simulate.capacity_text import INTERVAL, Found, goal
from headway.report.formatting import tenths

NOTE = (
    "n: requests of the endpoint with the fewest. Above it: the next rate tried, and the endpoint "
    "that keeps the least there."
)


def has_number(found: Found) -> bool:
    """Whether a rate was kept, a higher one was broken, and there were enough requests."""
    return bool(found.capacity.rate) and found.sure.is_enough and found.capacity.is_bounded


def capacity_table(capacities: Mapping[str, Found], share: float, unit: str) -> Table:
    """A row per strategy, the highest capacity first; it fits 80 columns.

    capacities: by strategy, each with a number. share: the share of its requests that every
    endpoint must keep inside its budget.
    """
    table = Table(
        title=f"Capacity at {goal(share)}, {unit}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    table.add_column("strategy", no_wrap=True)
    for column in ("capacity", INTERVAL, "n", "above it"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(" endpoint", overflow="fold")
    for name in sorted(capacities, key=lambda each: -capacities[each].capacity.rate):
        found, sure = capacities[name].capacity, capacities[name].sure
        above = next(each for each in found.tried if each.rate == found.bracket[1])
        least = min(above.attainment, key=lambda lane: above.attainment[lane])
        table.add_row(
            name,
            f"{found.rate:.3g}",
            f"{sure.low:.3g} to {sure.high:.3g}",
            f"{sure.counted:,}",
            f"{above.rate:.3g}",
            f" {least} {tenths(above.attainment[least])}",
        )
    return table
