"""EngineBook: holds the data of one engine's calls and device time until it is written."""

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
    """The event loop's thread fills the book. Its writer's thread takes the contents, one flush at
    a time.

    keeps: whether there is a writer. most: rows that may wait for it; further rows are only
    counted, and their device time is unrecorded.
    """

    def __init__(self, prices: PriceSettings, keeps: bool, most: int) -> None:
        self._prices, self._keeps, self._most = prices, keeps, most
        self._epoch = clock.epoch()
        self._recent, self._refusals = Recent(REMEMBERED), Recent(REFUSALS)
        self.unkept = 0  # rows dropped because the book was full
        self._lock = threading.Lock()  # guards the fields below, which the writer takes
        self._device = DeviceTime(self._epoch)
        self._rows: list[Row] = []
        self._charged: Counter[SpendKey] = Counter()
        self._device_ns = 0  # nanoseconds of all flushes so far

    def set_epoch(self, epoch: int) -> None:
        """Set, before anything is told, when the server's clock was 0, in Unix nanoseconds: by the
        store's clock, for all servers that share it."""
        self._device.shift(epoch - self._epoch)
        self._epoch = epoch

    @property
    def _is_idle(self) -> bool:
        """Whether the engine is up and has nothing to do."""
        raise NotImplementedError

    def _end_all(self) -> None:
        """End all open calls as they are, because the engine is closed."""
        raise NotImplementedError

    def sent(self, call: Call, lost: bool) -> None:
        """As in Books.sent. Does nothing here."""

    # -- queries

    def find(self, tenant: str, id: str) -> dict[NamedCall, Sequence[Row]]:
        """The rows of each remembered, ended call with this id or X-Request-Id."""
        found = chain(self._recent.find(tenant, id), self._refusals.find(tenant, id))
        return {named(rows[0]): rows for rows in found}

    def latest(self, tenant: str) -> Iterator[Sequence[Row]]:
        """The rows of the tenant's remembered calls, the latest first, without refused calls."""
        return self._recent.latest(tenant)

    def knows_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a remembered call of the tenant belongs to this workflow."""
        return self._recent.has_workflow(tenant, workflow)

    def find_open(self, tenant: str, id: str) -> dict[NamedCall, OpenCall]:
        """The tenant's open calls with this id or X-Request-Id."""
        return {}

    # -- the writer's thread

    def take(self, number: int) -> Flush:
        """The data gathered since the last call, as the writer's flush of this number."""
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
        """Close the book after the engine has closed. Called once, on the loop's thread."""
        self._end_all()
        now = self._now
        with self._lock:
            if self._is_idle:
                self._device.idle(now)
            if self._device.started:
                self._device.lose(now)  # time that was not idle, and shares whose rows never came

    # -- for subclasses

    @property
    def _now(self) -> int:
        """Unix nanoseconds, on a monotonic clock."""
        return self._epoch + clock.now()

    def _remember_refused(self, rows: list[Row]) -> None:
        self._refusals.add(rows)
        self._keep(rows)

    def _keep(self, rows: list[Row], day: int = 0) -> None:
        """Keep rows for the writer, if there is room. day: the Unix day of their charges; 0: no
        charges."""
        if not self._keeps:
            return
        with self._lock:
            for row in rows if day else ():
                if row["charged"]:
                    self._charged[SpendKey(day, row["key"], row["lane"])] += row["charged"]
            self._device.wait(self._now)
            if len(self._rows) + len(rows) <= self._most:
                for row in rows:  # in the same flush as the account with its time
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
    """The row of a refused request. waited: nanoseconds since its receipt. told: its other
    columns (lane, operation, arrived, code), and its finish if it was not refused."""
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
