"""The tables of two reports' differences, cell by cell, for the terminal and the page."""

from collections.abc import Callable

from headway.core.request import NEVER
from headway.figures.intervals.difference import IN_BUDGET, Difference
from headway.report.difference.pairing import PairedLane, Pairing
from headway.report.formatting import NOT_SAID, milliseconds, share

HEAD = ["", "n", "first", "second", "difference", "95 % interval", "second is"]
UNITS = (
    "Times in ms, from the scheduled arrival; shares in points of a hundred. Difference: the "
    "second less the first. Interval: from blocks of time that are drawn again; of two shares that "
    "are of all or of none, by Clopper and Pearson. Unclear: it holds 0. -: too few requests, or "
    "all of them came at about one time."
)


def cells(each: Difference) -> list[str]:
    """One row, in the columns of HEAD."""
    first, second = each.counts
    count = f"{first:,}" if first == second else f"{first:,} / {second:,}"
    value, change = _words(each)
    interval = each.interval
    sure = NOT_SAID if interval.is_empty else f"{change(interval.low)} to {change(interval.high)}"
    verdict = NOT_SAID if interval.is_empty else each.verdict
    values = [value(each.first), value(each.second), change(each.change)]
    return [each.metric, count, *values, sure, verdict]


def _words(each: Difference) -> tuple[Callable[[float], str], Callable[[float], str]]:
    """Functions that format a value of this metric, and a difference of it."""
    if each.metric == IN_BUDGET:
        return share, lambda value: f"{100 * value:+.1f}"
    if each.metric.endswith("/ s"):
        return "{:,.2f}".format, "{:+,.2f}".format
    return lambda value: milliseconds(round(min(value, NEVER))), _time


def _time(value: float) -> str:
    if abs(value) >= NEVER:
        return "later" if value > 0 else "earlier"
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return f"{sign}{milliseconds(round(abs(value)))}"


def how_paired(each: PairedLane) -> str:
    """How the lane was compared, in a few words."""
    return "the same requests" if each.is_paired else "other requests or other times"


def notes(pairing: Pairing) -> list[str]:
    """Explain what the tables count, and how the intervals were made."""
    paired = {each.is_paired for each in pairing.lanes}
    said = [UNITS]
    if True in paired:
        said.append("The same requests: the same blocks are drawn in both, request by request.")
    if False in paired:
        said.append("Other requests: each report has draws of its own, so intervals are wider.")
    return said
