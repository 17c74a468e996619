"""LedgerWriter: the background thread that writes the ledger."""

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sqlalchemy.exc import InternalError, OperationalError

from headway.errors import first_line
from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.config.ledger.ledger import LedgerSettings
from headway.server.intake.limits.spend import SpendControl
from headway.server.observe.logs import Log
from headway.server.store_clock import StoreClock
from headway.store.database import Database, StoreError
from headway.store.ids import new_id
from headway.store.ledger.flush import (
    MINUTE,
    Account,
    Flush,
    MinuteKey,
    MinutePart,
    divide_money,
)
from headway.store.ledger.ledger_store import LedgerStore, Writer

LEASE = 30 * SECOND  # without a flush for so long, a server on another machine counts as dead
LOOK = 10 * SECOND  # between two looks at dead servers and at other servers' spend
CLEAN = 60 * SECOND  # between two deletions of old rows
CLOSING = 10.0  # seconds for the last flush
STALLED = 3 * SECOND  # without an answer for so long, a database counts as away
STATE = OperationalError, InternalError  # the database is away, full or read-only; rows can wait
STUBBORN = 5  # failures of one flush while the database answers; then its rows are given up


class LedgerWriter:
    """Writes one flush after another. A flush that fails is retried unchanged until it is stored,
    or until its rows are given up. Meanwhile new data waits in the book."""

    def __init__(
        self,
        settings: LedgerSettings,
        database: Database,
        spend: SpendControl,
        log: Log,
        siblings: "list[LedgerWriter]",
    ) -> None:
        """siblings: the writers of this server; the new one appends itself. The first one also
        looks at other servers and deletes old rows."""
        siblings.append(self)
        self._siblings = siblings
        self._settings, self._database, self._spend, self._log = settings, database, spend, log
        self._store = LedgerStore(database)
        is_first = len(siblings) == 1
        self.clock: StoreClock = StoreClock(database) if is_first else siblings[0].clock
        self._alone = database.is_file
        now = _unix()
        id, host, pid = new_id("ledger-", clock.unix()), socket.gethostname(), os.getpid()
        self._writer = Writer(id, host, pid, now, spend.prices.hour_billionths)
        self._is_failing = False  # the last access to the database failed
        self._asked_at = 0  # when the current turn of work began; 0: none runs
        self.failures = self.written = self.given_up = 0  # flushes that failed; rows
        self.last_written = now
        self._pending: Flush | None = None
        self._number = self._stubborn = 0
        # Of the stored flushes: their device time, the account `open`, and the last one's `until`.
        self._stored_ns = self._open_ns = self._until = 0
        self._look_at = self._clean_at = 0  # on the monotonic clock: the other may be set back
        self._registered = False
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def away(self) -> bool:
        """Whether the database fails or does not answer."""
        asked = self._asked_at
        return self._is_failing or (asked > 0 and clock.now() - asked > STALLED)

    def open(self) -> None:
        """Close dead writers' intervals, and read what was spent today. Raises StoreError."""
        self._look()

    def start(self, take: Callable[[int], Flush]) -> None:
        """Start the thread. It writes the flushes that `take` returns for a flush's number."""
        self._take = take
        self._thread = threading.Thread(target=self._run, name="headway-ledger", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is left, within CLOSING seconds. Call it after the book has been closed."""
        self._end.set()
        if self._thread:
            self._thread.join(CLOSING + 1)
        if not (self._thread and self._thread.is_alive()):
            self._database.close()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._end.wait(self._settings.flush / SECOND):
                self._turn()
            until = clock.now() + round(CLOSING * SECOND)
            while not self._write(closes=True) and clock.now() < until:
                self._end.clear()
                self._end.wait(0.2)
        except Exception:  # the thread's edge
            self._log.critical("the ledger has stopped", exc_info=True)
            self._is_failing = True
            raise

    def _turn(self) -> None:
        self._asked_at = clock.now()
        try:
            self._work()
        finally:
            self._asked_at = 0

    def _work(self) -> None:
        if not self._write():
            return
        now, at = _unix(), clock.now()
        if self is not self._siblings[0]:
            return
        try:
            if at >= self._look_at:
                self._look()
            if at >= self._clean_at and not self._store.forget(now - self._settings.keep):
                self._clean_at = at + CLEAN
        except StoreError as error:
            self._failed(error)

    def _look(self) -> None:
        self.clock.ask()
        now = self.clock.nanoseconds()
        host, mine = self._writer.host, os.getpid()
        pids = self._store.open_pids(host)
        running = {pid: Path(f"/proc/{pid}").exists() for pid in pids}
        registered = any(each._registered for each in self._siblings)
        running[mine] = registered  # not registered: the pid is that of an earlier process
        alone = self._alone and not registered
        own = [each._writer.id for each in self._siblings]
        if closed := self._store.close_dead(alone, host, running, now, own):
            self._log.warning("ledger: intervals closed as unrecorded", servers=closed)
        day = clock.day()  # read even if no key has a cap on money: a reload may bring one
        others = self._store.spend_of(day, without=own)
        self._spend.refresh(day, {(key.key, key.lane): m for key, m in others.items()})
        self._look_at = clock.now() + LOOK

    def _write(self, *, closes: bool = False) -> bool:
        """Store the pending flush or a new one. closes: go on until the closing flush is stored.
        Returns whether all is stored."""
        while True:
            if self._pending is None:
                self._number += 1
                self._pending = replace(
                    self._take(self._number),
                    since=self._until,
                    open_before=self._open_ns,
                    device_before=self._stored_ns,
                    closes=closes,
                )
            flush = self._pending
            try:
                self._register(flush)
                self._store.write(self._writer, flush, self.clock.nanoseconds() + LEASE)
            except StoreError as error:
                self._failed(error)
                if not isinstance(error.__cause__, STATE):
                    self._lighten(flush)
                return False
            self._done(flush)
            if flush.closes or not closes:
                return True

    def _register(self, first: Flush) -> None:
        """Register the writer with its first flush, even if no engine is ready yet."""
        if not self._registered:
            self._writer = replace(self._writer, began=first.until - first.device_ns)
            self._store.begin(self._writer, self.clock.nanoseconds() + LEASE)
            self._registered = True

    def _done(self, flush: Flush) -> None:
        self._pending, self._stubborn = None, 0
        self._stored_ns += flush.device_ns
        self._open_ns += flush.open_ns
        self._until = flush.until
        self.written += len(flush.requests)
        self.last_written = _unix()
        if self._is_failing:
            self._log.info("ledger: the database is back")
        self._is_failing = False

    def _failed(self, error: StoreError) -> None:
        self.failures += 1
        if not self._is_failing:
            self._log.error("ledger: the database is away; rows wait", cause=first_line(error))
        self._is_failing = True

    def _lighten(self, flush: Flush) -> None:
        """Give up the rows of a flush that the database keeps refusing although it answers, so that
        later flushes can be stored. Their device time becomes unrecorded.

        The lanes' minutes go with them, because a lane's name may be what is refused.
        """
        try:
            self._store.open_pids(self._writer.host)
        except StoreError:
            return
        self._stubborn += 1
        parts = dict(flush.minutes)
        lanes = [parts.pop(key) for key in flush.minutes if key.account is Account.REQUESTS]
        if self._stubborn < STUBBORN or not (flush.requests or lanes):
            return
        self.given_up += len(flush.requests)
        self._log.critical("ledger: rows given up", rows=len(flush.requests))
        minute = MinuteKey(flush.until // MINUTE, Account.UNRECORDED)
        unrecorded = parts.setdefault(minute, MinutePart())
        unrecorded.nanoseconds += sum([part.nanoseconds for part in lanes])
        unrecorded.requests += len(flush.requests)
        divide_money(parts, self._writer.per_hour, self._stored_ns)
        self._pending = replace(flush, requests=(), minutes=parts)


def _unix() -> int:
    return clock.epoch() + clock.now()
