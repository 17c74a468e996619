"""A capacity in words: its number, unit, n and interval, or why there is no number."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway.figures.capacity import Capacity
from headway.figures.capacity_interval import ENOUGH_REQUESTS, CapacityInterval, seconds_for_enough

DRAWN = "nine of ten draws of its blocks of time"  # interval.COVERED


@dataclass(frozen=True, slots=True)
class Found:
    """A strategy's capacity."""

    capacity: Capacity
    sure: CapacityInterval


@dataclass(frozen=True, slots=True)
class Scope:
    """In which it was looked for."""

    unit: str
    seconds: float  # as asked for
    end: str  # why nothing higher was tried, in words
    trace_ends: bool = False  # all of a trace is offered, so that more seconds add nothing


def said(made: Found, scope: Scope) -> str:
    """With the endpoint that breaks first."""
    found, sure = made.capacity, made.sure
    tried = {each.rate: each for each in found.tried if each.asked}
    if not tried:
        return "unknown: at no rate tried is anybody left after the warm-up; take more --seconds"
    if not found.rate:
        best = max(tried.values(), key=lambda each: (each.least, -each.rate))
        rates = f"{min(tried):.3g} to {max(tried):.3g}" if len(tried) > 1 else f"{min(tried):.3g}"
        few = "" if sure.is_enough else f"; so few cannot be sure: {_remedy(sure, scope)}"
        return (
            f"none: no rate tried ({rates} {scope.unit}; {_counted(made)}) is kept; "
            f"{_worst(best.attainment)} at {best.rate:.3g}{few}"
        )
    if not sure.is_enough:
        return (
            f"unknown: {sure.counted} requests of {sure.lane} count, and with fewer than "
            f"{ENOUGH_REQUESTS} 95 % is a matter of a few; {_remedy(sure, scope)}"
        )
    counted = _counted(made)
    if not found.is_bounded:
        return (
            f"at least {found.rate:.3g} {scope.unit} ({counted}): nothing broke up to there "
            f"({scope.end})"
        )
    broken = tried[found.bracket[1]]
    told = (
        f"{found.rate:.3g} {scope.unit} ({sure.low:.3g} to {sure.high:.3g} in {DRAWN}; {counted}); "
        f"at {broken.rate:.3g} {_worst(broken.attainment)}"
    )
    if skipped := found.skipped:
        told += f"; lower rates are not all kept: {', '.join(f'{rate:.3g}' for rate in skipped)}"
    return told


def _counted(made: Found) -> str:
    sure = made.sure
    return f"n {sure.counted:,}" + (f" of {sure.lane}" if len(_lanes(made.capacity)) > 1 else "")


def _remedy(sure: CapacityInterval, scope: Scope) -> str:
    if scope.trace_ends:
        return "take a longer trace"
    return f"take --seconds {seconds_for_enough(scope.seconds, sure.counted)} or more"


def _lanes(found: Capacity) -> set[str]:
    return {lane for each in found.tried for lane in each.attainment}


def _worst(attainment: Mapping[str, float]) -> str:
    lane = min(attainment, key=lambda name: attainment[name])
    return f"{lane} keeps {100 * attainment[lane]:.1f} %"  # 94.9 must not read as 95
