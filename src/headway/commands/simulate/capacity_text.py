"""A capacity in words: its number, unit, n and interval, or why there is no number."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.figures.capacity import Capacity
from headway.figures.capacity_interval import CapacityInterval, seconds_for_enough
from headway.report.formatting import figures, tenths

INTERVAL = "90 % interval"  # capacity_interval.COVERED


@dataclass(frozen=True, slots=True)
class Found:
    """A strategy's capacity, and how sure it is."""

    capacity: Capacity
    sure: CapacityInterval


@dataclass(frozen=True, slots=True)
class Scope:
    """What the search covered."""

    unit: str
    seconds: float  # of arrivals, as requested
    end: str  # why nothing higher was tried, in words
    trace_ends: bool = False  # whether all of the trace is offered, so more seconds add nothing


def capacity_sentence(found: Found, scope: Scope) -> str:
    """The capacity, and the endpoint that misses its budget first above it."""
    capacity, sure = found.capacity, found.sure
    tried = {each.rate: each for each in capacity.tried if each.has_requests}
    if not tried:
        return "unknown: no requests after the warm-up at any rate tried; take more --seconds"
    if not capacity.rate:
        best = max(tried.values(), key=lambda each: (each.least, -each.rate))
        rates = " to ".join([figures(each) for each in sorted({min(tried), max(tried)})])
        few = "" if sure.is_enough else f"; too few requests to be sure: {_remedy(sure, scope)}"
        return (
            f"none: misses budgets at every rate tried ({rates} {scope.unit}; {_counted(found)}); "
            f"at {figures(best.rate)} {_worst(best.attainment)}{few}"
        )
    if not sure.is_enough:
        return (
            f"unknown: too few requests ({sure.counted} of {sure.lane}; {goal(sure.share)} needs "
            f"{sure.enough:,}): {_remedy(sure, scope)}"
        )
    counted = _counted(found)
    if not capacity.is_bounded:
        kept = missed_below(found) or "every rate tried is kept"
        return (
            f"at least {figures(capacity.rate)} {scope.unit} ({counted}): {kept}; the search ends "
            f"there ({scope.end})"
        )
    broken = tried[capacity.bracket[1]]
    text = (
        f"{figures(capacity.rate)} {scope.unit} ({INTERVAL} {figures(sure.low)} to "
        f"{figures(sure.high)}; {counted}); at {figures(broken.rate)} {_worst(broken.attainment)}"
    )
    return f"{text}; {missed}" if (missed := missed_below(found)) else text


def goal(share: float) -> str:
    """The share to keep, in percent as the user gave it."""
    return f"{100 * share:g} %"


def missed_below(found: Found) -> str:
    """The lower rates that miss budgets; empty if there are none."""
    skipped = ", ".join(figures(rate) for rate in found.capacity.skipped)
    return f"some lower rates miss budgets: {skipped}" if skipped else ""


def _counted(found: Found) -> str:
    sure = found.sure
    return f"n {sure.counted:,}" + (f" of {sure.lane}" if len(_lanes(found.capacity)) > 1 else "")


def _remedy(sure: CapacityInterval, scope: Scope) -> str:
    if scope.trace_ends:
        return "take a longer trace"
    seconds = seconds_for_enough(scope.seconds, sure.counted, sure.enough)
    return f"take --seconds {seconds} or more"


def _lanes(capacity: Capacity) -> set[str]:
    return {lane for each in capacity.tried for lane in each.attainment}


def _worst(attainment: Mapping[str, float]) -> str:
    lane = min(attainment, key=lambda name: attainment[name])
    return f"{lane} keeps {tenths(attainment[lane])}"
