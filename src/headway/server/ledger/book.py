"""Book: gathers the ledger's data of one model's calls, on the event loop's thread."""

from collections.abc import Sequence

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER
from headway.server import clock
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.engine.handle import EngineState
from headway.server.intake.limits.spend import SpendControl
from headway.server.intake.model import Model
from headway.server.ledger.engine_book import EngineBook, refused_row
from headway.server.ledger.rows.open_call import OpenCall
from headway.server.ledger.rows.request_rows import Row, charged, request_rows
from headway.server.observe.metrics.requests import finish_of
from headway.server.protocol.labels import Labels, labels_of
from headway.server.protocol.problem import Problem
from headway.store.ledger.named_call import NamedCall

NOT_HERE = frozenset({"engine_down", "draining"})  # error codes of calls that may never get rows


class Book(EngineBook):
    """A Watcher of one model. keeps, most: as in EngineBook."""

    def __init__(self, model: Model, spend: SpendControl, keeps: bool, most: int) -> None:
        super().__init__(model.config.prices, keeps, most)
        self._engine, self._spend = model.engine, spend
        self._open: dict[str, OpenCall] = {}  # by request
        self._calls: dict[str, OpenCall] = {}  # by call
        model.engine.staged = self.staged
        model.watch(self)

    # -- a Watcher

    def ready(self) -> None:
        """Begin to account for a new engine. Calls of the previous engine get no more rows."""
        with self._lock:
            self._device.begin(self._now)
        self._end_stranded()

    def lost(self) -> None:
        """Handle the loss of the last engine: the time since its last message is unrecorded."""
        with self._lock:
            if self._device.started:
                self._device.lose(self._now)
        self._end_stranded()

    def entered(self, call: Call) -> None:
        known = self._calls[call.id] = OpenCall(call)
        self._open.update(dict.fromkeys(call.choices, known))

    def refused(self, call: Call, problem: Problem) -> None:
        """Add a row for each request of a call that was refused after tokenizing."""
        routed = call.routed
        refusal = Refusal(problem, routed.operation, routed.arrival, routed.lane)
        rows = [self._refused_row(refusal, routed.labels) for _ in call.choices]
        model = routed.served or routed.model
        for row, id in zip(rows, call.choices, strict=True):
            row |= {"id": id, "call": call.id, "model": model}
        self._remember_refused(rows)

    def refused_early(self, refusal: Refusal) -> None:
        """Add a row for each request of a call that was refused before it was made."""
        try:
            labels = labels_of(refusal.arrival.headers)
        except Problem:
            labels = Labels()
        rows = [self._refused_row(refusal, labels) for _ in range(refusal.count)]
        for row in rows:
            row["call"] = rows[0]["call"]
        self._remember_refused(rows)

    def left(self, call: Call, open: Sequence[str]) -> None:
        known = self._calls.get(call.id)
        if known:
            known.left = clock.now()
            known.sent = max(known.sent, known.left)  # an attempt may lose before it ends
            code = call.problem.code if call.problem else ""
            known.rowless = code in NOT_HERE and not self._is_up
            self._end(known)

    def staged(self, stages: Sequence[RequestStages]) -> None:
        """Take the stages of requests whose rows come next."""
        for each in stages:
            if known := self._open.get(each.id):
                known.stages[each.id] = each

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        if self._keeps:
            with self._lock:
                self._device.rows(steps, requests, self._engine.load)
        for row in requests:
            if known := self._open.get(row.id):
                known.rows[row.id] = row
                self._end(known)
            elif self._keeps:  # the call was given up when its engine seemed to have failed
                with self._lock:
                    self._device.drop(row.nanoseconds)

    # -- the HTTP side

    def sent(self, call: Call, lost: bool) -> None:
        """As Books.sent. A lost call sends nothing, so it is over once it has left."""
        if known := self._calls.get(call.id):
            known.sent = min(known.left, clock.now()) if lost else clock.now()
            self._end(known)

    def find_open(self, tenant: str, id: str) -> dict[NamedCall, OpenCall]:
        """The tenant's open calls with this id or X-Request-Id."""
        found = {}
        for known in self._calls.values():
            call, routed = known.call, known.call.routed
            if routed.tenant.name == tenant and id in (call.id, routed.request_id):
                sent = known.left < known.sent < NEVER
                found[NamedCall(call.id, self._epoch + call.arrived, sent)] = known
        return found

    # -- inside

    def _end_all(self) -> None:
        for known in list(self._calls.values()):
            now = clock.now()
            known.left, known.sent = min(known.left, now), min(known.sent, now)
            known.rowless = True
            self._end(known)

    @property
    def _is_up(self) -> bool:
        return self._engine.state in (EngineState.READY, EngineState.DRAINING)

    @property
    def _is_idle(self) -> bool:
        load = self._engine.load
        waits = any(lane.waiting for lane in load.lanes.values())
        return self._is_up and not load.running and not waits

    def _end_stranded(self) -> None:
        """End the calls that have left: the engine will send them no more rows."""
        for known in [each for each in self._calls.values() if each.left != NEVER]:
            known.rowless = True
            self._end(known)

    def _end(self, known: OpenCall) -> None:
        """Once a call is complete, make its rows and settle what its key is charged."""
        if not known.is_whole:
            return
        call = known.call
        del self._calls[call.id]
        for id in call.choices:
            del self._open[id]
        rows = request_rows(known, self._prices, self._epoch)
        day = self._spend.release(call.id, charged(rows))
        self._recent.add(rows)
        self._keep(rows, day)

    def _refused_row(self, refusal: Refusal, labels: Labels) -> Row:
        arrival = refusal.arrival
        told = {
            "lane": refusal.lane,
            "operation": refusal.operation,
            "arrived": self._epoch + arrival.at,
            "finish": finish_of(refusal.problem.code).value,
            "code": refusal.problem.code,
        }
        request_id, waited = arrival.headers.get("x-request-id", ""), clock.now() - arrival.at
        return refused_row(arrival.tenant, request_id, labels, waited, told)
