"""The lanes as a table: budget, attainment, waits, and a sparkline of the last 15 minutes."""

from collections.abc import Sequence

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.report.formatting import NOT_SAID, duration, share
from headway.server.dashboard.page.headline import FEWEST, MINUTES
from headway.server.dashboard.page.html_table import Cell, Html, table, wrapped
from headway.server.dashboard.view import LanePoint, LaneView, ModelView, waited_too_long

HEAD = (
    ("Lane", ""),
    (
        "In budget",
        f"Good over all requests that ended in the last {MINUTES}, refused ones included. Without "
        "those whose key was at a limit of its own",
    ),
    ("n", "Requests that ended, refused ones included"),
    ("TTFT p95", "Arrival to first token; - below 100 requests"),
    ("Queue p95", "Arrival to first step; - below 100 requests"),
    ("Waiting", "Requests in line now"),
    ("Oldest", "How long the first in line has waited"),
    ("Running", "Sequences in the batch now"),
    ("Refused", f"In the last {MINUTES}"),
    ("Abandoned", f"By their clients before the first token, in the last {MINUTES}"),
    ("Last 15 minutes", "Requests by half minute; those outside the budget are marked"),
    ("Budget", ""),
)
LIMITS = (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E"), ("queue", "queue"))
WIDE, TALL, STEP = 120, 24, 4  # size of the sparkline, and width of a half minute in it
LEAST = 1.5  # height of a bar's part outside the budget: one miss among thousands shows, too


def lane_table(model: ModelView, name: str) -> Html:
    """The table of a model's lanes, one row per lane. name: the table's id."""
    rows = [(f"{name}-{k}", _cells(lane)) for k, lane in enumerate(model.lanes)]
    return table(name, f"Lanes of {model.name}", HEAD, rows)


def _cells(lane: LaneView) -> Sequence[Cell]:
    limits = lane.budget
    return [
        lane.name,
        _attainment(lane),
        str(lane.ended),
        _against(lane.ttft_p95, limits.ttft),
        _against(lane.queue_p95, limits.queue),
        str(lane.waiting),
        _oldest(lane),
        str(lane.running),
        str(lane.refused),
        str(lane.abandoned),
        sparkline(lane.points),
        budget(limits),
    ]


def budget(limits: Budget) -> str:
    """A budget's limits in one line."""
    told = [
        f"{word} {duration(getattr(limits, field))}"
        for field, word in LIMITS
        if getattr(limits, field) != NEVER
    ]
    return ", ".join(told) or "none"


def _attainment(lane: LaneView) -> Cell:
    if not lane.ended:
        return NOT_SAID
    kept = lane.good / lane.ended
    if lane.ended < FEWEST or not lane.budget.is_timed:
        return share(kept)
    return _judged(share(kept), kept >= REQUIRED_ATTAINMENT)


def _judged(text: str, is_kept: bool) -> Html:
    """Mark a text as kept or missed; a missed one has a sign as well as a colour."""
    return wrapped("b", "kept" if is_kept else "missed", text if is_kept else f"▼ {text}")


def _against(value: int | None, limit: int) -> Cell:
    if value is None:
        return NOT_SAID
    return duration(value) if limit == NEVER else _judged(duration(value), value <= limit)


def _oldest(lane: LaneView) -> Cell:
    if lane.oldest == NEVER:
        return NOT_SAID
    text = duration(lane.oldest)
    return _judged(text, False) if waited_too_long(lane) else text


def sparkline(points: Sequence[LanePoint]) -> Html:
    """A sparkline: a bar per half minute, its height the requests, those outside budget on top."""
    most = max([point.ended for point in points], default=0)
    late = sum([point.ended - point.good for point in points])
    every = sum([point.ended for point in points])
    label = f"{every} requests in 15 minutes, {late} outside the budget"
    bars = "".join([_bar(k, point, most) for k, point in enumerate(points) if point.ended])
    return Html(
        f'<svg class="spark" viewBox="0 0 {WIDE} {TALL}" width="{WIDE}" height="{TALL}" role="img" '
        f'aria-label="{label}"><title>{label}</title>{bars}</svg>'
    )


def _bar(number: int, point: LanePoint, most: int) -> str:
    """The bar of a half minute: requests inside the budget below, those outside on top."""
    outside = point.ended - point.good
    inside, out = TALL * point.good / most, TALL * outside / most
    out = max(out, LEAST) if outside else 0.0
    top = max(0.0, TALL - inside - out)
    drawn = _rect("kept", number, TALL - inside, inside)
    return drawn + _rect("out", number, top, out) if outside else drawn


def _rect(kind: str, number: int, top: float, tall: float) -> str:
    return (
        f'<rect class="{kind}" x="{number * STEP}" y="{top:.1f}" width="{STEP - 1}" '
        f'height="{tall:.1f}"/>'
    )
