"""The page's first sentence: which lane misses its budget and since when, or that all keep it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.report.formatting import duration, share
from headway.server.config.durations import SECOND
from headway.server.dashboard.page.times import clock_time
from headway.server.dashboard.view import (
    POINT,
    POINTS,
    WINDOW,
    LanePoint,
    LaneView,
    View,
    waited_too_long,
)

FEWEST = 20  # requests that a verdict on a lane needs: 95 % of 19 would allow no miss at all
MINUTES = f"{WINDOW // (60 * SECOND)} minutes"


@dataclass(frozen=True, slots=True)
class Headline:
    """The page's headline."""

    verdict: str  # the sentence
    rest: str  # further sentences; may be empty
    spoken: str  # for screen readers, which read it at each change, so without figures
    is_bad: bool  # some lane misses its budget, or an engine is not ready


@dataclass(frozen=True, slots=True)
class _Named:
    name: str  # of the lane, with its model if there are several
    lane: LaneView


def headline(view: View) -> Headline:
    """The headline over all lanes that the caller may see."""
    broken = [each for each in view.models if each.state != "ready"]
    if broken:
        said = "; ".join(f"{each.name} is {each.state}" for each in broken)
        why = " ".join([f"{each.name} has failed: {each.fault}." for each in broken if each.fault])
        return Headline(f"{said}.", why, f"{said}.", True)
    timed = [each for each in _named(view) if each.lane.budget.is_timed]
    if not timed:
        said = "No lane has a budget, so none can be missed."
        return Headline(said, "", said, False)
    enough = [each for each in timed if each.lane.ended >= FEWEST]
    missed = sorted([each for each in enough if not _keeps(each.lane)], key=_attainment)
    kept = [each for each in enough if _keeps(each.lane)]
    rest = [_misses(each, view) for each in missed[1:]]
    rest += [_kept(kept)] if missed and kept else []
    rest += [_few(timed)] if enough else []
    rest += [_waiting([each for each in timed if waited_too_long(each.lane)])]
    if missed:
        spoken = ", ".join(each.name for each in missed)
        first, said = _misses(missed[0], view), f"Below 95 percent of its budget: {spoken}."
    elif kept:
        first = _kept(kept)
        said = "All lanes keep their budgets." if len(kept) == len(timed) else first.split(":")[0]
    else:
        counts = ", ".join(f"{each.name} {each.lane.ended}" for each in timed)
        first = (
            f"Too few requests in the last {MINUTES} to say whether budgets are kept: {counts} "
            f"({FEWEST} are needed)."
        )
        said = "Too few requests to say whether budgets are kept."
    return Headline(first, " ".join(filter(None, rest)), said, bool(missed))


def _named(view: View) -> Iterator[_Named]:
    for model in view.models:
        for lane in model.lanes:
            yield _Named(lane.name if len(view.models) == 1 else f"{model.name}@{lane.name}", lane)


def _keeps(lane: LaneView | LanePoint) -> bool:
    return lane.good >= REQUIRED_ATTAINMENT * lane.ended


def _attainment(each: _Named) -> float:
    return each.lane.good / each.lane.ended


def _misses(each: _Named, view: View) -> str:
    lane = each.lane
    kept = f"{share(lane.good / lane.ended)} of {lane.ended} requests were inside it"
    return (
        f"{each.name} misses its budget: {kept} in the last {MINUTES}"
        f"{_since(lane.points, view.until)}."
    )


def _since(points: Sequence[LanePoint], until: int) -> str:
    """When the lane was below its target, in words: the latest run of half minutes that missed,
    ignoring those without requests. until: when the last half minute ends."""
    known = [(k, _keeps(point)) for k, point in enumerate(points) if point.ended]
    run = list[int]()
    for k, keeps in reversed(known):
        if keeps and run:
            break
        if not keeps:
            run.append(k)
    if not run:
        return ""
    began = clock_time(until - (POINTS - run[-1]) * POINT)
    earlier = " or earlier" if run[-1] == 0 else ""
    if run[0] == known[-1][0]:
        return f"; below {share(REQUIRED_ATTAINMENT)} since {began}{earlier}"
    ended = clock_time(until - (POINTS - run[0] - 1) * POINT)
    return f"; below {share(REQUIRED_ATTAINMENT)} from {began}{earlier} to {ended}"


def _kept(kept: Sequence[_Named]) -> str:
    shares = [f"{share(_attainment(each))} of {each.lane.ended}" for each in kept]
    if len(kept) == 1:
        inside = f"{shares[0]} requests were inside it in the last {MINUTES}"
        return f"{kept[0].name} keeps its budget: {inside}."
    names = [each.name for each in kept]
    who = " and ".join(names) if len(kept) == 2 else f"{len(kept)} lanes"
    told = ", ".join(f"{name} {part}" for name, part in zip(names, shares, strict=True))
    return f"{who} keep their budgets: {told} requests were inside in the last {MINUTES}."


def _few(timed: Sequence[_Named]) -> str:
    few = [each for each in timed if each.lane.ended < FEWEST]
    told = ", ".join(f"{each.name} {each.lane.ended}" for each in few)
    return f"Too few requests to say: {told}." if few else ""


def _waiting(late: Sequence[_Named]) -> str:
    """The lanes whose first in line is past its budget already, though it does not count yet."""
    told = ", ".join(f"{each.name} {duration(each.lane.oldest)}" for each in late)
    return f"First in line, and past the budget already: {told}." if late else ""
