"""WatchedFunction: a function as the live page sees it."""

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager

from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.request import Finish
from headway.server.answering.call import Call
from headway.server.config.tenant import Tenant
from headway.server.dashboard.looking import model_view
from headway.server.dashboard.series import Series, SlidingSum
from headway.server.dashboard.view import ModelView, Point
from headway.server.engine.handle import EngineState
from headway.server.functions.calls import FunctionCalls

UNSERVED = frozenset({Finish.REFUSED, Finish.EXPIRED})


class WatchedFunction:
    """A Watchable of a function in this process. Rows come from the engine's thread. Open items are
    not listed, because callers do not know their ids."""

    def __init__(self, calls: FunctionCalls) -> None:
        """Count calls and items from now on."""
        settings = calls.batcher.settings
        self.name, self.slots, self.is_function = calls.target.name, settings.size, True
        self.entry = self.name
        self.lanes: Mapping[str, Lane] = {
            name: line.lane for name, line in calls.batcher.load.lanes.items()
        }
        self.series = Series()
        self.lock: AbstractContextManager[object] = threading.Lock()
        self.points: dict[int, Point] = {}
        self.windows: Mapping[str, SlidingSum] = {name: SlidingSum() for name in self.lanes}
        self.calls: dict[str, Call] = {}  # none
        self._calls = calls
        calls.metrics.listeners.append(self.rows)
        calls.metrics.refusing.append(self.refused)

    @property
    def load(self) -> Load:
        return self._calls.batcher.load

    @property
    def state(self) -> EngineState:
        return self._calls.state

    @property
    def fault(self) -> str:
        """Empty: a process that fails is told of by the one that restarts it."""
        return ""

    def view(self, now: int) -> ModelView:
        """What the page shows of the function, with all of its lanes. now: nanoseconds."""
        everybody = Tenant("", "", frozenset(self.lanes), "", "")
        return model_view(self, everybody, now)

    def rows(self, calls: list[StepRow], items: list[RequestRow]) -> None:
        """Count calls and items, as Batcher's `rows`."""
        with self.lock:
            self.series.steps(calls, 0)
            for item in items:
                self.series.ended(item, refused=item.finish in UNSERVED)

    def refused(self, lane: str, at: int) -> None:
        """Count an item that was refused because its lane was full. It has no row. at:
        nanoseconds."""
        with self.lock:
            part = self.series.at(at).lane(lane)
            part.ended += 1
            part.refused += 1
