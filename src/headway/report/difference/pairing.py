"""Pairing: what can be compared in two reports, what cannot, and the differences."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.figures.intervals.difference import (
    COVERED,
    IN_BUDGET,
    Difference,
    Window,
    lane_differences,
    rate_differences,
    same_answers,
    same_requests,
)
from headway.report.analysis import Analysis
from headway.report.difference.setting_differences import setting_differences
from headway.report.formatting import share


@dataclass(frozen=True, slots=True)
class PairedLane:
    """One lane under one strategy, in both reports."""

    strategy: str  # or server; "first / second" if the names differ
    lane: str
    is_paired: bool  # by request: both runs got the same requests at the same times
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """The comparison of two reports. Only the first of several repeats counts."""

    titles: tuple[str, str]  # of the files
    lanes: tuple[PairedLane, ...]
    rates: Mapping[str, tuple[Difference, ...]]  # by strategy: answers and tokens per second
    others: tuple[str, ...]  # what else differs between the runs, a sentence each
    left_out: tuple[str, ...]  # what is not compared, a sentence each

    @property
    def answer(self) -> str:
        """One sentence: the largest change of a share in budget among the sure ones."""
        shares = [(e, d) for e in self.lanes for d in e.differences if d.metric == IN_BUDGET]
        sure = [(each, change) for each, change in shares if change.is_sure]
        if not sure:
            few = " There are few requests, or the runs are alike." if shares else ""
            return f"No share inside a budget differs for sure.{few}"
        each, change = max(sure, key=lambda pair: abs(pair[1].change))
        more = "more" if change.change > 0 else "less"
        low, high = (f"{100 * part:+.1f}" for part in (change.interval.low, change.interval.high))
        return (
            f"{self.titles[1]} has {100 * abs(change.change):.1f} points {more} of {each.lane} "
            f"inside its budget under {each.strategy} (95 % interval {low} to {high}): "
            f"{share(change.second)} instead of {share(change.first)}."
            f"{_by_chance(len(sure), sum(not d.interval.is_empty for _, d in shares))}"
        )

    @property
    def plain(self) -> dict[str, Any]:
        """What --json prints: nanoseconds, shares of one, amounts per second. A time that did not
        come within the run is "never"; a difference from or to it is "later" or "earlier"."""
        return {
            "reports": list(self.titles),
            "answer": self.answer,
            "differs": list(self.others),
            "left_out": list(self.left_out),
            "lanes": [
                {
                    "strategy": each.strategy,
                    "lane": each.lane,
                    "paired": each.is_paired,
                    "differences": [_plain(change) for change in each.differences],
                }
                for each in self.lanes
            ],
            "rates": {name: [_plain(each) for each in mine] for name, mine in self.rates.items()},
        }


def _by_chance(sure: int, compared: int) -> str:
    """How many of several shares differ for sure, and how many would if nothing differed."""
    if compared < 2:
        return ""
    chance = f"in equal runs {(1 - COVERED) * compared:.2g} would by chance"
    return f" {sure} of {compared} shares differ for sure; {chance}."


def _plain(each: Difference) -> dict[str, Any]:
    known = not each.interval.is_empty
    interval = [_change(each.interval.low), _change(each.interval.high)] if known else None
    return {
        "metric": each.metric,
        "n": list(each.counts),
        "values": [_number(each.first), _number(each.second)],
        "difference": _change(each.change),
        "interval": interval,
        "second_is": each.verdict,
    }


def _number(value: float) -> float | str:
    """A value for JSON; a time that did not come within the run is "never"."""
    return "never" if value >= NEVER else value


def _change(value: float) -> float | str:
    """A difference for JSON; one from or to "never" is "later" or "earlier"."""
    if abs(value) < NEVER:
        return value
    return "later" if value > 0 else "earlier"


def pair_reports(first: Analysis, second: Analysis, titles: tuple[str, str]) -> Pairing:
    """Compare two reports. Raise a one-line SettingError if they have nothing in common."""
    names = _names(first, second, titles)
    lanes = [lane for lane in first.lanes if lane in second.lanes]
    if not lanes:
        said = f"{', '.join(first.lanes)} there, {', '.join(second.lanes)} here"
        raise SettingError(f"{titles[0]} and {titles[1]} have no endpoint in common: {said}")
    found, rates = list[PairedLane](), dict[str, tuple[Difference, ...]]()
    others = setting_differences(first, second, titles, names)
    for one, other in names:
        title = one if one == other else f"{one} / {other}"
        runs = first.first(one), second.first(other)
        windows = _window(first), _window(second)
        for lane in lanes:
            is_paired = same_requests(*runs, lane) and windows[0] == windows[1]
            if not same_answers(*runs, lane):
                others.append(f"The requests of {lane} ask for answers of other lengths.")
            changes = lane_differences(runs, lane, windows, is_paired)
            found.append(PairedLane(title, lane, is_paired, tuple(changes)))
        rates[title] = tuple(rate_differences(runs, (windows[0][0], windows[1][0])))
    return Pairing(
        titles,
        tuple(found),
        rates,
        tuple(dict.fromkeys(others)),
        tuple(_left_out(first, second, titles, {a for a, _ in names}, {b for _, b in names})),
    )


def _names(first: Analysis, second: Analysis, titles: tuple[str, str]) -> list[tuple[str, str]]:
    """Pairs of strategies with the same name. If none match, a sole one in each makes a pair."""
    common = [(name, name) for name in first.strategies if name in second.strategies]
    if not common and len(first.strategies) == len(second.strategies) == 1:
        return [(first.strategies[0], second.strategies[0])]
    if not common:
        raise SettingError(
            f"{titles[0]} and {titles[1]} have no {first.noun} in common: "
            f"{', '.join(first.strategies)} there, {', '.join(second.strategies)} here"
        )
    return common


def _window(found: Analysis) -> Window:
    return found.report.warm_up, int(found.report.about["workload"]["window_ns"])


def _left_out(
    first: Analysis,
    second: Analysis,
    titles: tuple[str, str],
    ours: set[str],
    theirs: set[str],
) -> list[str]:
    said = []
    for found, title, names, other in (
        (first, titles[0], ours, second),
        (second, titles[1], theirs, first),
    ):
        only = [name for name in found.strategies if name not in names]
        only += [lane for lane in found.lanes if lane not in other.lanes]
        if only:
            said.append(f"Only in {title}: {', '.join(only)}.")
        if any(len(runs) > 1 for runs in found.report.runs.values()):
            said.append(f"Of {title} the first repeat is compared.")
    return said
