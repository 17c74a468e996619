"""Watched: one model as the page sees it, and the Watcher that feeds its series."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.request import Finish
from headway.server.answering.call import DROPPED, Call
from headway.server.answering.refusal import Refusal
from headway.server.dashboard.series import Series, SlidingSum
from headway.server.dashboard.view import Point
from headway.server.engine.handle import EngineHandle, EngineState
from headway.server.observe.metrics.model import REFUSED
from headway.server.observe.metrics.requests import FAILED, KEY_LIMITS, LEFT
from headway.server.protocol.problem import Problem

UNSERVED = frozenset({Finish.REFUSED, Finish.EXPIRED})


class Watched:
    """A Watcher that keeps what the page shows of one model: its series and its open calls.
    Requests are counted as in /metrics."""

    def __init__(
        self,
        name: str,
        lanes: Sequence[Lane],
        slots: int,
        engine: EngineHandle,
        now: Callable[[], int],
    ) -> None:
        """slots: sequences that may run at once, as configured."""
        self.name, self.slots = name, slots
        self.entry = name  # the entry of `models`; a replica's differs from its name
        self.lanes: Mapping[str, Lane] = {lane.name: lane for lane in lanes}
        self.is_function = False
        self.lock: AbstractContextManager[object] = (
            nullcontext()
        )  # not needed: everything is on the event loop's thread
        self.series = Series()
        self.points: dict[int, Point] = {}  # half minutes that are over, by number
        self.windows: Mapping[str, SlidingSum] = {name: SlidingSum() for name in self.lanes}
        self.calls: dict[str, Call] = {}  # open calls, by id
        self._engine, self._now = engine, now
        # Requests whose rows may still come and do not count: failed ones, which are counted
        # already, and those of a route's attempt that lost.
        self._settled = set[str]()

    @property
    def load(self) -> Load:
        """The engine's latest load; empty if the engine is down."""
        return Load() if self.state is EngineState.DOWN else self._engine.load

    @property
    def state(self) -> EngineState:
        return self._engine.state

    @property
    def fault(self) -> str:
        """Why the engine failed last, while it is not ready."""
        return self._engine.down

    # -- a Watcher

    def ready(self) -> None:
        self._settled.clear()

    def lost(self) -> None:
        self._settled.clear()

    def entered(self, call: Call) -> None:
        self.calls[call.id] = call

    def refused(self, call: Call, problem: Problem) -> None:
        if problem.status in REFUSED:
            self._turned_away(call.routed.lane, problem.code, len(call.choices))

    def refused_early(self, refusal: Refusal) -> None:
        self._turned_away(refusal.lane, refusal.problem.code, refusal.count)

    def _turned_away(self, lane: str, code: str, count: int) -> None:
        """Count requests that never reached the engine. Without a lane they are not on the page."""
        if lane:
            part = self.series.at(self._now()).lane(lane)
            if code not in KEY_LIMITS:
                part.ended += count
            if code in LEFT:
                part.abandoned += count
            else:
                part.refused += count

    def left(self, call: Call, open: Sequence[str]) -> None:
        self.calls.pop(call.id, None)
        reason = call.problem.code if call.problem else ""
        if not open or not reason:
            return
        part = self.series.at(self._now()).lane(call.routed.lane)
        if reason in LEFT:
            part.abandoned += len(call.unheard)
        if reason in FAILED:
            failed = [id for id in open if id not in call.rows]
            part.ended += len(failed)
            self._settled.update(failed)
        if reason == DROPPED:
            self._settled.update([id for id in open if id not in call.rows])

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        if steps:
            self.series.steps(steps, self._engine.load.num_blocks)
        for row in requests:
            if row.id in self._settled:
                self._settled.remove(row.id)
            else:
                self.series.ended(row, refused=row.finish in UNSERVED)
