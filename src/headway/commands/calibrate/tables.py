"""The tables of `headway calibrate`: what a step costs, and how far predictions are off."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from headway.core.cost.step_cost import WHOLE, StepCost
from headway.costing.calibration import Calibration
from headway.report.formatting import duration

ONCE = {
    "decode": "if any row decodes",
    "prefill": "if any prompt is computed",
    "head": "if any token is sampled",
}


def terms_table(calibration: Calibration) -> Table:
    """A table of the coefficients that are not 0."""
    title = f"What a step costs: {calibration.model}, {calibration.dtype}, {calibration.device}"
    table = _table(title, ("", ""))
    table.show_header = False
    for name, text in terms(calibration.cost).items():
        table.add_row(name, text)
    table.add_row("compute-bound above", f"{calibration.cost.knee} tokens")
    return table


def terms(cost: StepCost) -> dict[str, str]:
    """The coefficients that are not 0, as text with a unit, by the name of the term."""
    texts = {}
    parts = (("", cost.device), ("host, ", cost.host), ("between steps, ", cost.after))
    for part, rates in parts:
        for name in rates.__slots__:
            if coefficient := getattr(rates, name):
                texts[part + ONCE.get(name, f"per {name}")] = duration(coefficient / 1_000)
    for begin, slope in cost.pieces:
        texts[f"per token from {begin} on"] = duration(slope / 1_000)
    if cost.tile:
        texts[f"per {cost.rounding.tile} tokens begun"] = duration(cost.tile / 1_000)
    if not cost.rounding.is_exact:
        digits = f"to {cost.rounding.digits} binary digits" if cost.rounding.digits else "not"
        texts["tokens are rounded up"] = f"{digits}, to at least {cost.rounding.least}"
    if at_once := cost.gathering.at_once:
        texts["rows are padded"] = f"in groups of up to {at_once} blocks of {cost.gathering.block}"
    if cost.wake:
        long = f" for {duration(cost.cooling)}" if cost.cooling else ""
        woken = (cost.wake, *cost.wake_tail)
        texts[f"after the engine slept{long}"] = ", then ".join(map(duration, woken))
    if cost.turn:
        texts["first step without prompts"] = duration(cost.turn)
    return texts


def errors_table(about: Mapping[str, Any]) -> Table:
    """A table of the errors by regime: of the final fit, and of a fit to designed batches alone."""
    columns = ("regime", "steps", "median", "p90", "sum", "p90 held")
    table = _table("Errors on live traffic", columns)
    for title, key in (("", "errors"), (", designed batches alone", "errors_of_designed_alone")):
        for regime, each in about[key].items():
            median, total = (f"{each[name] / WHOLE:+.1%}" for name in ("median", "total"))
            p90, within = (f"{each[name] / WHOLE:.1%}" for name in ("p90", "within"))
            table.add_row(f"{regime}{title}", f"{each['steps']:,}", median, p90, total, within)
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left", no_wrap=True)
    return table
