"""Turn what is watched into a view (model_view). It copies numbers and formats nothing."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from heapq import nsmallest
from typing import Protocol

from headway.core.lane import Budget, Lane
from headway.core.load import Load
from headway.core.request import NEVER, Finish
from headway.server.answering.call import DROPPED, Call
from headway.server.answering.choice import Choice
from headway.server.config.tenant import Tenant
from headway.server.dashboard.series import (
    LanePart,
    Part,
    Series,
    SlidingSum,
    is_unjudged,
    of_lane,
)
from headway.server.dashboard.time_counts import TimeCounts
from headway.server.dashboard.view import (
    POINT,
    POINTS,
    WINDOW,
    EnginePoint,
    LanePoint,
    LaneView,
    ModelView,
    Point,
    RunningRow,
    Times,
)
from headway.server.engine.handle import EngineState
from headway.server.ledger.rows.request_rows import Row

SLOW = 10  # requests that are explained
SHOWN = 40  # open requests that are listed


class Watchable(Protocol):
    """A served model or function, as the page needs it."""

    name: str
    entry: str  # the entry of `models`; a key's permissions name entries
    is_function: bool
    slots: int  # sequences that may run at once, as configured at the start
    lanes: Mapping[str, Lane]  # as configured at the start; a version may change their budgets
    series: Series
    points: dict[int, Point]  # half minutes that are over, by number
    windows: Mapping[str, SlidingSum]  # sums over the last minutes (WINDOW), by lane
    calls: dict[str, Call]  # open calls, by id
    lock: AbstractContextManager[object]  # held while the view is made

    @property
    def load(self) -> Load: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def fault(self) -> str: ...


def point_ends(now: int) -> int:
    """When the present point of the charts ends."""
    return (now // POINT + 1) * POINT


def model_view(watched: Watchable, tenant: Tenant, now: int) -> ModelView:
    """The view that this tenant may see. now: nanoseconds of the engine's clock."""
    with watched.lock:
        return _look(watched, tenant, now)


def _look(watched: Watchable, tenant: Tenant, now: int) -> ModelView:
    load, points = watched.load, _points(watched, now)
    window = watched.series.between(now - WINDOW, now + 1)
    rows, mine, others = _open(watched, tenant, now)
    return ModelView(
        name=watched.name,
        state=watched.state.value,
        lanes=tuple(
            [
                _lane(watched, name, window, points, now)
                for name in watched.lanes
                if name in tenant.lanes
            ]
        ),
        is_function=watched.is_function,
        slots=load.slots or watched.slots,
        running=load.running,
        waiting=sum([lane.waiting for lane in load.lanes.values()]),
        blocks=load.num_blocks - load.free_blocks,
        num_blocks=0 if watched.is_function else load.num_blocks,
        batch=_mean_batch(window),
        steps=sum([part.steps for part in window]),
        points=tuple([point.engine for point in points]),
        rows=rows,
        mine=mine,
        others=others,
        fault=watched.fault,
    )


def _points(watched: Watchable, now: int) -> list[Point]:
    """The charts' points. A half minute that is over no longer changes, so it is summed once."""
    last = now // POINT
    first, known = last - POINTS + 1, watched.points
    for number in [number for number in known if number < first]:
        del known[number]
    return [
        known.get(number) or _point(watched, number, is_over=number < last)
        for number in range(first, last + 1)
    ]


def _point(watched: Watchable, number: int, is_over: bool) -> Point:
    parts = watched.series.between(number * POINT, (number + 1) * POINT)
    lanes = {name: _lane_point(of_lane(parts, name)) for name in watched.lanes}
    point = Point(_engine_point(parts), lanes)
    if is_over:
        watched.points[number] = point
    return point


def _lane(
    watched: Watchable, name: str, window: Sequence[Part], points: Sequence[Point], now: int
) -> LaneView:
    seen = watched.windows[name].of(of_lane(window, name))
    load = watched.load.lanes.get(name)
    oldest = load.oldest if load else NEVER
    return LaneView(
        name=name,
        budget=load.lane.budget if load else watched.lanes[name].budget,
        waiting=load.waiting if load else 0,
        running=load.running if load else 0,
        oldest=NEVER if oldest == NEVER else max(0, now - oldest),
        ended=seen.ended,
        good=seen.good,
        refused=seen.refused,
        abandoned=seen.abandoned,
        queue_p95=seen.queue.percentile(95),
        ttft_p95=seen.ttft.percentile(95),
        points=tuple([point.lanes[name] for point in points]),
    )


def _lane_point(parts: Sequence[LanePart]) -> LanePoint:
    seen = LanePart()
    for part in parts:
        seen.add(part)
    queue, ttft = _times(seen.queue), _times(seen.ttft)
    return LanePoint(seen.ended, seen.good, seen.refused, seen.abandoned, queue, ttft)


def _times(counts: TimeCounts) -> Times:
    return Times(counts.percentile(50), counts.percentile(95), max(counts, default=None))


def _engine_point(parts: Sequence[Part]) -> EnginePoint:
    ran = [part for part in parts if part.steps]
    if not ran:
        return EnginePoint(None, None, None, None)
    return EnginePoint(
        _mean_batch(ran),
        max([part.running for part in ran]),
        max([part.waiting for part in ran]),
        max([part.blocks for part in ran]),
    )


def _mean_batch(parts: Sequence[Part]) -> float | None:
    spent = sum([part.step_ns for part in parts])
    return sum([part.row_ns for part in parts]) / spent if spent else None


def _open(watched: Watchable, tenant: Tenant, now: int) -> tuple[tuple[RunningRow, ...], int, int]:
    """The tenant's first SHOWN open requests (generating before silent ones, then by age, then by
    id), the number of its open requests, and the number of other requests in open calls."""
    mine, others = list[tuple[bool, int, str, Choice]](), 0
    for call in watched.calls.values():
        routed = call.routed
        if routed.tenant.name != tenant.name or routed.lane not in tenant.lanes:
            others += len(call.choices)
            continue
        for id, choice in call.choices.items():
            if not choice.answer.finish:
                mine.append((not choice.answer.tokens, call.arrived, id, choice))
    return tuple([_row(*each, now) for each in nsmallest(SHOWN, mine, _order)]), len(mine), others


def _order(each: tuple[bool, int, str, Choice]) -> tuple[bool, int, str]:
    return each[:3]


def _row(silent: bool, arrived: int, id: str, choice: Choice, now: int) -> RunningRow:
    request, age = choice.answer.request, max(0, now - arrived)
    tokens = len(request.prompt), len(choice.answer.tokens), request.max_tokens
    return RunningRow(id, request.lane, *tokens, age)


def slow_of(
    latest: Iterable[Sequence[Row]], tenant: Tenant, budgets: Mapping[str, Budget]
) -> tuple[list[Row], bool, int]:
    """The requests to explain, whether they missed their budgets, and how many were looked at.

    These are the latest SLOW requests outside their budget, the latest first; if there are none,
    the slowest ones, the slowest first. latest: the rows of the tenant's calls, the latest first.
    budgets: by lane.
    """
    rows = [row for call in latest for row in call if row["lane"] in tenant.lanes]
    late = [row for row in rows if not row["good"] and not _is_unjudged(row, budgets)]
    if late:
        return late[:SLOW], True, len(rows)
    return sorted(rows, key=lambda row: -row["wall_ns"])[:SLOW], False, len(rows)


def _is_unjudged(row: Row, budgets: Mapping[str, Budget]) -> bool:
    if row["code"] == DROPPED:
        return True
    limits = budgets.get(row["lane"], Budget())
    times = (
        (row["queue_ns"], limits.queue),
        (row["ttft_ns"], limits.ttft),
        (row["tpot_ns"], limits.tpot),
    )
    kept = all(took is None or took <= limit for took, limit in times)
    return is_unjudged(Finish(row["finish"]), row["ttft_ns"] is not None, kept)
