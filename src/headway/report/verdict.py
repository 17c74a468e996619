"""The verdict that a report opens with: which strategies keep every budget, the cheapest first.

The device time of servers measured from outside is unknown, so they keep their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from headway.core.lane import Budget
from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.figures.capacity_interval import ENOUGH_REQUESTS
from headway.figures.intervals.block_bootstrap import NO_INTERVAL, Interval
from headway.figures.intervals.share_interval import share_interval
from headway.report.analysis import Analysis
from headway.report.formatting import duration, share

SURE = 0.95  # the coverage of a share's interval
MOST_FEW = 8  # so many endpoints with few requests are named
NAMED = 3  # up to this many strategies that fall short are named one by one


@dataclass(frozen=True, slots=True)
class Standing:
    """How well a strategy that ran to its end keeps the budgets."""

    strategy: str
    lane: str  # the endpoint with the least attainment
    attainment: float  # this endpoint's attainment, as the median over the repeats
    offered: int  # this endpoint's requests that count
    device: float  # nanoseconds of device time per answered token, in the first run
    interval: Interval  # of the attainment; empty with several repeats
    repeats: int

    @property
    def keeps(self) -> bool:
        """Whether every endpoint has REQUIRED_ATTAINMENT of its requests inside their budget."""
        return self.attainment >= REQUIRED_ATTAINMENT

    @property
    def shortfall(self) -> str:
        return f"{share(self.attainment)} of {self.lane} (n {self.offered:,})"

    @property
    def sure(self) -> str:
        """The number of requests behind the share, and its interval; with several repeats, their
        number in place of the interval."""
        if self.repeats > 1:
            return f"n {self.offered:,}, the median of {self.repeats} repeats"
        if self.interval.is_empty:
            return f"n {self.offered:,}"
        low, high = share(self.interval.low), share(self.interval.high)
        return f"n {self.offered:,}, {share(SURE)} interval {low} to {high}"


def limited(found: Analysis) -> list[str]:
    """The endpoints that have a budget and at least one request that counts."""
    offered = next(iter(found.counted.values()))[0].offered if found.counted else {}
    return [
        name
        for name, lane in found.report.lanes.items()
        if lane.budget != Budget() and offered.get(name)
    ]


def standings(found: Analysis) -> list[Standing]:
    """The strategies that keep every budget, cheapest first; then the rest, nearest miss first.

    Empty if no endpoint is limited, or no strategy ran to its end.
    """
    lanes, judged = limited(found), list[Standing]()
    for name in found.strategies if lanes else ():
        if not found.is_whole(name):
            continue
        shares = {
            lane: median_low(each.attainment for each in found.latency[name][lane])
            for lane in lanes
        }
        worst = min(lanes, key=lambda lane: shares[lane])
        offered = found.latency[name][worst][0].offered
        device = found.used(name)["device time per answered token"]
        repeats = len(found.latency[name][worst])
        sure = _interval(found, name, worst) if repeats == 1 else NO_INTERVAL
        judged.append(Standing(name, worst, shares[worst], offered, device, sure, repeats))
    keeping = sorted((each for each in judged if each.keeps), key=lambda each: each.device)
    missing = sorted((each for each in judged if not each.keeps), key=lambda each: -each.attainment)
    return [*keeping, *missing]


def _interval(found: Analysis, strategy: str, lane: str) -> Interval:
    """The interval of the endpoint's share in budget, over the counted requests by time block."""
    window = found.report.warm_up, int(found.report.about["workload"]["window_ns"])
    rows = [row for row in found.first(strategy).requests if row.lane == lane]
    missing = found.first(strategy).offered[lane] - len(rows)  # only if the run was interrupted
    good = [(row.arrived, int(row.good)) for row in rows] + [(window[1], 0)] * missing
    return share_interval(good, window, SURE)


def order(found: Analysis) -> list[str]:
    """All strategies in the verdict's order; unranked ones, such as broken-off runs, come last."""
    ranked = [each.strategy for each in standings(found)]
    return [*ranked, *(name for name in found.strategies if name not in ranked)]


def _unranked(found: Analysis) -> str:
    """Why no strategy is judged."""
    if limited(found):
        return "No run came to its end, so none is judged by the budgets."
    offered = next((runs[0].offered for runs in found.report.runs.values()), {})
    if any(
        offered.get(name) and each.budget != Budget() for name, each in found.report.lanes.items()
    ):
        return "All requests with a budget arrived in the warm-up, so no budget is judged."
    return "No endpoint that was asked has a budget, so there is none to keep."


def verdict(found: Analysis) -> str:
    """The verdict: who keeps every budget, the share it rests on, and who falls short."""
    ranked = standings(found)
    keeping, missing = (
        [each for each in ranked if each.keeps is wanted] for wanted in (True, False)
    )
    if not ranked:
        return _unranked(found)
    if not keeping:
        nearest, only = missing[0], len(ranked) == 1
        who = f"{nearest.strategy} does not keep" if only else f"No {found.noun} keeps"
        near = "It has" if only else f"{nearest.strategy} comes nearest, with"
        amount = f"{share(nearest.attainment)} of {nearest.lane} inside its budget ({nearest.sure})"
        return f"{who} every budget. {near} {amount}."
    least = f" {_least(keeping)}."
    if not missing:
        who = _verb(keeping) if len(keeping) == 1 else f"{_all(len(keeping))} {found.nouns} keep"
        cost = "" if found.is_remote else f"; {_cheapest(keeping)}"
        return f"{who} every budget{cost}.{least}"
    order = "" if found.is_remote else _order(keeping)
    return f"{_verb(keeping)} every budget{order}.{least} {_fall(missing)}."


def _all(count: int) -> str:
    return "Both" if count == 2 else f"All {count}"


def _least(keeping: Sequence[Standing]) -> str:
    """The least share in budget of the first strategy, with its endpoint."""
    first = keeping[0]
    whose = f"{first.strategy}'s" if len(keeping) > 1 else "Its"
    return f"{whose} least share is {share(first.attainment)} of {first.lane} ({first.sure})"


def caution(found: Analysis) -> str:
    """Warn of too few requests to be sure of a 95 % share; empty: each endpoint has enough."""
    offered = next(iter(found.counted.values()))[0].offered if found.counted else {}
    few = {lane: offered[lane] for lane in limited(found) if offered[lane] < ENOUGH_REQUESTS}
    if not few:
        return ""
    fewest = sorted(few, key=lambda lane: few[lane])[:MOST_FEW]  # of many, the worst off
    counts = ", ".join(f"{lane} {count:,}" for lane, count in few.items() if lane in fewest)
    if len(few) > MOST_FEW:
        counts += f", and {len(few) - MOST_FEW} more endpoints"
    return (
        f"Few requests ({counts}): to be sure of {share(REQUIRED_ATTAINMENT)} takes "
        f"{ENOUGH_REQUESTS} of each endpoint."
    )


def _verb(keeping: Sequence[Standing]) -> str:
    return f"{_listed([e.strategy for e in keeping])} {'keep' if len(keeping) > 1 else 'keeps'}"


def _order(keeping: Sequence[Standing]) -> str:
    return ", the cheapest first" if len(keeping) > 1 else ""


def _cheapest(keeping: Sequence[Standing]) -> str:
    best = keeping[0]
    which = f"{best.strategy} is the cheapest, at" if len(keeping) > 1 else "it costs"
    return f"{which} {duration(best.device)} of device time per answered token"


def _fall(missing: Sequence[Standing]) -> str:
    if len(missing) <= NAMED:
        return f"{_short(missing)} inside {'their' if len(missing) > 1 else 'its'} budget"
    nearest = missing[0]
    return (
        f"The other {len(missing)} do not; {nearest.strategy} comes nearest, with "
        f"{nearest.shortfall} inside its budget"
    )


def _short(missing: Sequence[Standing]) -> str:
    shortfalls = [f"{each.strategy} has {each.shortfall}" for each in missing[:NAMED]]
    return _listed(shortfalls)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
