"""EngineBook: what is to be kept of one engine's calls and device time, until it is written."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from uuid import uuid4

from headway.core.request import Finish
from headway.server import clock
from headway.server.answering.call import Call
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.tenant import Tenant
from headway.server.ledger.device_time import DeviceTime
from headway.server.ledger.rows.open_call import OpenCall
from headway.server.ledger.rows.recent import Recent
from headway.server.ledger.rows.request_rows import Row, unmeasured
from headway.server.protocol.labels import Labels
from headway.store.ledger.flush import Flush, SpendKey, divide_money
from headway.store.ledger.named_call import NamedCall, named

REMEMBERED, REFUSALS = 2_048, 512  # calls that can be explained without the store


class EngineBook:
    """Filled on the event loop's thread. What it gathers is taken by its writer's thread, flush by
    flush.

    keeps: whether there is a writer. most: rows that may wait for it; further ones are counted, and
    their device time is unrecorded.
    """

    def __init__(self, prices: PriceSettings, keeps: bool, most: int) -> None:
        self._prices, self._keeps, self._most = prices, keeps, most
        self._epoch = clock.epoch()
        self._recent, self._refusals = Recent(REMEMBERED), Recent(REFUSALS)
        self.unkept = 0  # rows for which there was no room
        self._lock = threading.Lock()  # of what follows, which the writer takes
        self._device = DeviceTime(self._epoch)
        self._rows: list[Row] = []
        self._charged: Counter[SpendKey] = Counter()
        self._device_ns = 0  # nanoseconds of all flushes so far

    @property
    def _is_idle(self) -> bool:
        """Whether the engine is up, and has nothing to do."""
        raise NotImplementedError

    def _end_all(self) -> None:
        """The engine is closed: what is open ends as it is."""
        raise NotImplementedError

    def sent(self, call: Call, lost: bool) -> None:
        """As Books.sent."""

    # -- what is asked of it

    def find(self, tenant: str, id: str) -> dict[NamedCall, Sequence[Row]]:
        """The rows of each call with this id or X-Request-Id that has ended and is remembered."""
        found = chain(self._recent.find(tenant, id), self._refusals.find(tenant, id))
        return {named(rows[0]): rows for rows in found}

    def latest(self, tenant: str) -> Iterator[Sequence[Row]]:
        """The rows of the tenant's calls that are remembered, the latest first. Without calls that
        were refused."""
        return self._recent.latest(tenant)

    def knows_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a call that is remembered belongs to this workflow."""
        return self._recent.has_workflow(tenant, workflow)

    def find_open(self, tenant: str, id: str) -> dict[NamedCall, OpenCall]:
        """The calls of this tenant that have not ended, by their id or their X-Request-Id."""
        return {}

    # -- the writer's thread

    def take(self, number: int) -> Flush:
        """What was gathered since the last call, as the writer's flush of this number."""
        with self._lock:
            now = self._now
            self._device.wait(now)
            if self._is_idle:
                self._device.idle(now)
            rows, self._rows = self._rows, []
            spend, self._charged = self._charged, Counter()
            parts, total, open = self._device.take()
            divide_money(parts, self._prices.hour_billionths, self._device_ns)
            self._device_ns += total
            return Flush(number, self._device.until, rows, parts, spend, total, open)

    def close(self) -> None:
        """The engine is closed: nothing more is measured. Called once, on the loop."""
        self._end_all()
        now = self._now
        with self._lock:
            if self._is_idle:
                self._device.idle(now)
            if self._device.started:
                self._device.lose(now)  # what is not idle, and shares whose rows never came

    # -- for those who fill it

    @property
    def _now(self) -> int:
        """Unix nanoseconds, on a clock that never runs back."""
        return self._epoch + clock.now()

    def _remember_refused(self, rows: list[Row]) -> None:
        self._refusals.add(rows)
        self._keep(rows)

    def _keep(self, rows: list[Row], day: int = 0) -> None:
        """Rows for the writer, as long as there is room for them. day: of what they were charged;
        0: nothing."""
        if not self._keeps:
            return
        with self._lock:
            for row in rows if day else ():
                if row["charged"]:
                    self._charged[SpendKey(day, row["key"], row["lane"])] += row["charged"]
            self._device.wait(self._now)
            if len(self._rows) + len(rows) <= self._most:
                for row in rows:  # in the same flush as the account that has its time
                    row["minute"] = self._device.keep(row["device_ns"], row["lane"])
                self._rows += rows
                return
            for row in rows:
                self._device.drop(row["device_ns"])
        self.unkept += len(rows)


def refused_row(
    tenant: Tenant,
    request_id: str,
    labels: Labels,
    waited: int,
    told: Mapping[str, object],
) -> Row:
    """The row of a request that was refused. waited: nanoseconds from its receipt. told: its other
    columns: lane, operation, arrived, code."""
    id = f"refused-{uuid4().hex}"
    return {
        **unmeasured(Finish.REFUSED.value),
        "id": id,
        "call": id,
        "request_id": request_id[:255],
        "tenant": tenant.name,
        "key": tenant.key,
        "model": "",
        "version": 0,
        "prompt_version": labels.prompt_version,
        "workflow": labels.workflow,
        "attempt": labels.attempt,
        "minute": 0,
        "wall_ns": waited,
        "stages": f'{{"door": {waited}}}',
        "ran_before": "[]",
        **told,
    }
