"""Views for tests of the page."""

from headway.core.lane import Budget
from headway.core.request import NEVER
from headway.server.dashboard.view import POINTS, EnginePoint, LanePoint, LaneView, ModelView, View

MS = 1_000_000
UNIX = 1_764_028_800 * 10**9  # 2025-11-25 00:00:00 UTC
TIMED = Budget(ttft=300 * MS)


def points(*given):
    """A chart's points; the given ones are the last."""
    return (*[LanePoint()] * (POINTS - len(given)), *given)


def half_minute(ended, good):
    return LanePoint(ended, good)


def lane(name="voice", ended=0, good=0, budget=TIMED, oldest=NEVER, given=(), **others):
    fields = {"waiting": 0, "running": 0, "refused": 0, "abandoned": 0}
    fields |= {"queue_p95": None, "ttft_p95": None} | others
    fields |= {"budget": budget, "oldest": oldest, "ended": ended, "good": good}
    return LaneView(name=name, points=points(*given), **fields)


def model(*lanes, name="tiny", state="ready", **others):
    fields = {
        "is_function": False,
        "slots": 16,
        "running": 3,
        "waiting": 1,
        "blocks": 10,
        "num_blocks": 100,
        "batch": 2.5,
        "steps": 40,
        "points": (EnginePoint(2.5, 3, 1, 10),) * POINTS,
        "rows": (),
        "mine": 0,
        "others": 0,
    } | others
    return ModelView(name=name, state=state, lanes=lanes, **fields)


def view(*models, **others):
    fields = {"slow": (), "are_late": False, "remembered": 0, "key": "", "signed_in": False}
    return View(now=UNIX, until=UNIX, models=models, **fields | others)


def slow_row(**others):
    """A row of the ledger as the page reads it."""
    return {
        "id": "cmpl-1-0",
        "call": "cmpl-1",
        "request_id": "mine",
        "operation": "chat",
        "lane": "voice",
        "arrived": UNIX,
        "wall_ns": 1_000 * MS,
        "ttft_ns": 700 * MS,
        "code": "",
        "good": False,
        "finish": "length",
        "stages": '{"queue.slots": 600000000, "prefill.own": 150000000, "decode.own": 250000000}',
        "ran_before": '[["chat", 4, 90]]',
        "fresh_tokens": 5,
        "cached_tokens": 1,
        "output_tokens": 7,
        "preemptions": 0,
        "promised_first_ns": 500 * MS,
    } | others
