"""Book: gathers what is to be kept of calls and of device time, on the event loop's thread."""

import threading
from collections import Counter
from collections.abc import Sequence
from uuid import uuid4

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Finish
from headway.server import clock
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.engine.handle import EngineState
from headway.server.intake.limits.spend import SpendControl
from headway.server.intake.model import Model
from headway.server.ledger.device_time import DeviceTime
from headway.server.ledger.open_call import OpenCall
from headway.server.ledger.recent import Recent
from headway.server.ledger.request_rows import (
    Row,
    charged,
    request_rows,
    unmeasured,
)
from headway.server.protocol.labels import Labels, labels_of
from headway.server.protocol.problem import Problem
from headway.store.ledger.flush import Flush, SpendKey, divide_money

REMEMBERED, REFUSALS = 2_048, 512  # calls that can be explained without the store
NOT_HERE = frozenset({"engine_down", "draining"})  # codes of calls whose rows may never come


class Book:
    """A Watcher of one model. What it gathers is taken by its writer's thread, flush by flush.

    keeps: whether there is a writer. most: rows that may wait for it; further ones are counted, and
    their device time is unrecorded.
    """

    def __init__(self, model: Model, spend: SpendControl, keeps: bool, most: int) -> None:
        self._engine, self._keeps, self._most = model.engine, keeps, most
        self._prices, self._spend = model.config.prices, spend
        self._epoch = clock.epoch()
        self._open: dict[str, OpenCall] = {}  # by request
        self._calls: dict[str, OpenCall] = {}  # by call
        self._recent, self._refusals = Recent(REMEMBERED), Recent(REFUSALS)
        self.unkept = 0  # rows for which there was no room
        self._lock = threading.Lock()  # of what follows, which the writer takes
        self._device = DeviceTime(self._epoch)
        self._rows: list[Row] = []
        self._charged: Counter[SpendKey] = Counter()
        self._device_ns = 0  # nanoseconds of all flushes so far
        model.engine.staged = self.staged
        model.watch(self)

    # -- a Watcher

    def ready(self) -> None:
        """An engine is ready. Calls of its predecessor will hear no more of it."""
        with self._lock:
            self._device.begin(self._now)
        for known in self._stranded():
            known.rowless = True
            self._end(known)

    def entered(self, call: Call) -> None:
        known = self._calls[call.id] = OpenCall(call)
        self._open.update(dict.fromkeys(call.choices, known))

    def refused(self, call: Call, problem: Problem) -> None:
        """A call that was tokenized and found no place: a row for each of its requests."""
        routed = call.routed
        refusal = Refusal(problem, routed.operation, routed.arrival, routed.lane)
        rows = [self._refused_row(refusal, id, routed.labels) for id in call.choices]
        for row in rows:
            row |= {"call": call.id, "model": routed.served or routed.model}
        self._refusals.add(rows)
        self._keep(rows)

    def refused_early(self, refusal: Refusal) -> None:
        """Refused before it was a call."""
        try:
            labels = labels_of(refusal.arrival.headers)
        except Problem:
            labels = Labels()
        rows = [self._refused_row(refusal, f"refused-{uuid4().hex}", labels)]
        self._refusals.add(rows)
        self._keep(rows)

    def left(self, call: Call, open: Sequence[str]) -> None:
        known = self._calls.get(call.id)
        if known:
            known.left = clock.now()
            code = call.problem.code if call.problem else ""
            known.rowless = code in NOT_HERE and not self._is_up
            self._end(known)

    def staged(self, stages: Sequence[RequestStages]) -> None:
        """Where the time of requests went whose rows come next."""
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
            elif self._keeps:  # its call was given up when its engine seemed to have failed
                with self._lock:
                    self._device.drop(row.nanoseconds)

    # -- the HTTP side

    def sent(self, call: Call) -> None:
        """The last byte of its answer was sent, or its client has gone."""
        if known := self._calls.get(call.id):
            known.sent = clock.now()
            self._end(known)

    def find(self, tenant: str, id: str) -> Sequence[Row]:
        """The rows of a call that has ended, if it is remembered."""
        return self._recent.find(tenant, id) or self._refusals.find(tenant, id)

    def knows_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a call that is remembered belongs to this workflow."""
        return self._recent.has_workflow(tenant, workflow)

    def find_open(self, tenant: str, id: str) -> OpenCall | None:
        """A call of this tenant that has not ended, by its id or its X-Request-Id."""
        for known in self._calls.values():
            routed = known.call.routed
            if routed.tenant.name == tenant and id in (known.call.id, routed.request_id):
                return known
        return None

    # -- the writer's thread

    def take(self, number: int) -> Flush:
        """What was gathered since the last call, as the writer's flush of this number."""
        with self._lock:
            if self._is_idle:
                self._device.idle(self._now)
            rows, self._rows = self._rows, []
            spend, self._charged = self._charged, Counter()
            parts, total, open = self._device.take()
            divide_money(parts, self._prices.hour_billionths, self._device_ns)
            self._device_ns += total
            return Flush(number, self._device.until, rows, parts, spend, total, open)

    def close(self) -> None:
        """The engine is closed: nothing more is measured. Called once, on the loop."""
        for known in list(self._calls.values()):
            now = clock.now()
            known.left, known.sent = min(known.left, now), min(known.sent, now)
            known.rowless = True
            self._end(known)
        with self._lock:
            if self._is_idle:
                self._device.idle(self._now)
            else:
                self._device.lose(self._now)

    # -- inside

    @property
    def _now(self) -> int:
        """Unix nanoseconds, on a clock that never runs back."""
        return self._epoch + clock.now()

    @property
    def _is_up(self) -> bool:
        return self._engine.state in (EngineState.READY, EngineState.DRAINING)

    @property
    def _is_idle(self) -> bool:
        load = self._engine.load
        waits = any(lane.waiting for lane in load.lanes.values())
        return self._is_up and not load.running and not waits

    def _stranded(self) -> list[OpenCall]:
        return [known for known in self._calls.values() if known.left != NEVER]

    def _end(self, known: OpenCall) -> None:
        """If all is known of a call, make its rows, and settle what its key was charged."""
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

    def _refused_row(self, refusal: Refusal, id: str, labels: Labels) -> Row:
        arrival, now = refusal.arrival, clock.now()
        waited = now - arrival.at
        return {
            "id": id,
            "call": id,
            "request_id": arrival.headers.get("x-request-id", "")[:255],
            "tenant": arrival.tenant.name,
            "key": arrival.tenant.key,
            "lane": refusal.lane,
            "model": "",
            "operation": refusal.operation,
            "version": 0,
            "prompt_version": labels.prompt_version,
            "workflow": labels.workflow,
            "attempt": labels.attempt,
            "arrived": self._epoch + arrival.at,
            "minute": 0,
            "wall_ns": waited,
            "code": refusal.problem.code,
            "stages": f'{{"door": {waited}}}',
            "ran_before": "[]",
            **unmeasured(Finish.REFUSED.value),
        }

    def _keep(self, rows: list[Row], day: int = 0) -> None:
        """Rows for the writer, as long as there is room for them. day: of what they were charged;
        0: nothing."""
        if not self._keeps:
            return
        with self._lock:
            for row in rows if day else ():
                if row["charged"]:
                    self._charged[SpendKey(day, row["key"], row["lane"])] += row["charged"]
            if len(self._rows) + len(rows) <= self._most:
                for row in rows:  # in the same flush as the account that has its time
                    row["minute"] = self._device.keep(row["device_ns"], row["lane"])
                self._rows += rows
                return
            for row in rows:
                self._device.drop(row["device_ns"])
        self.unkept += len(rows)
