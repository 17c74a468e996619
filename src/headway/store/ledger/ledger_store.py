"""LedgerStore: writes flushes, closes the intervals of dead writers, and deletes old rows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Executable,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from headway.store.database import Database
from headway.store.ledger.flush import (
    MINUTE,
    Account,
    Flush,
    MinuteKey,
    MinutePart,
    SpendKey,
    divide_money,
)
from headway.store.ledger.ledger_tables import MINUTES, OUTCOMES, REQUESTS, SPEND, WRITERS

PIECE = 1_000  # rows deleted per transaction; minutes and requests: up to the end of a minute
AT_ONCE = 50  # rows deleted per statement
DAY_NS = 86_400_000_000_000
COUNTS = MinutePart.__slots__  # columns of ledger_minutes that are added up
MOVED = ("flushes", "began", "until", "alive_until", "closed", "device_ns", "open_ns")  # by a flush

# Every flush runs these statements, so they are built once: building one takes longer than SQLite
# takes to run it.
_MINE = WRITERS.c.id == bindparam("writer")
FIND_WRITER = select(WRITERS).where(_MINE).with_for_update()
MOVE_WRITER = update(WRITERS).where(_MINE).values({name: bindparam(name) for name in MOVED})
ADD_REQUESTS = insert(REQUESTS)


@dataclass(frozen=True, slots=True)
class Writer:
    """One run of a server, in the ledger."""

    id: str
    host: str  # of the server's process
    pid: int  # of the server's process
    began: int  # Unix nanoseconds; moves on until an engine is ready
    per_hour: int  # cost of an hour of the device, in billionths


class LedgerStore:
    """The ledger's part of a store. Used by one thread at a time.

    A flush is one transaction. It counts once even if it is retried, because a flush whose number
    is already stored is ignored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = sqlite.insert if database.is_file else postgresql.insert
        self._add_to_minutes = self._adding(MINUTES, COUNTS)
        self._add_to_spend = self._adding(SPEND, ("money",))

    def _adding(self, table: Table, counts: tuple[str, ...]) -> Executable:
        """A statement that adds these counts to a row, or inserts the row."""
        made = self._insert(table)
        more = {name: table.c[name] + made.excluded[name] for name in counts}
        keys = list(table.primary_key.columns)
        return made.on_conflict_do_update(index_elements=keys, set_=more)

    def begin(self, writer: Writer, alive_until: int) -> None:
        """Register a writer. A second call does nothing."""
        with self._database.begin() as connection:
            self._add_writer(connection, writer, alive_until)

    def _add_writer(self, connection: Connection, writer: Writer, alive_until: int) -> None:
        values = {
            **{name: getattr(writer, name) for name in Writer.__slots__},
            "until": writer.began,
            "alive_until": alive_until,
            "closed": False,
            "flushes": 0,
            "device_ns": 0,
            "open_ns": 0,
        }
        connection.execute(self._insert(WRITERS).values(values).on_conflict_do_nothing())

    def write(self, writer: Writer, flush: Flush, alive_until: int) -> None:
        """Store a flush, unless it is already stored."""
        with self._database.begin() as connection:
            row = connection.execute(FIND_WRITER, {"writer": writer.id}).one_or_none()
            if row is None:  # a backup that is older than the writer was restored
                self._add_writer(connection, writer, alive_until)
                row = connection.execute(FIND_WRITER, {"writer": writer.id}).one()
            if row.flushes >= flush.number:
                return  # stored by an earlier try whose answer was lost
            self._follow(connection, row, flush)
            device_ns = flush.device_before + flush.device_ns
            values = {
                "flushes": flush.number,
                "began": flush.until - device_ns,  # moves on until an engine is ready
                "until": flush.until,
                "alive_until": alive_until,
                "closed": flush.closes,
                "device_ns": device_ns,
                "open_ns": flush.open_before + flush.open_ns,
            }
            connection.execute(MOVE_WRITER, {"writer": writer.id, **values})
            if flush.requests:
                rows = [{**row, "writer": writer.id} for row in flush.requests]
                connection.execute(ADD_REQUESTS, rows)
            self._add_minutes(connection, writer.id, flush.minutes)
            spent = [
                {**key._asdict(), "writer": writer.id, "money": money}
                for key, money in flush.spend.items()
            ]
            if spent:
                connection.execute(self._add_to_spend, spent)

    def _add_minutes(
        self, connection: Connection, writer: str, parts: Mapping[MinuteKey, MinutePart]
    ) -> None:
        rows = [
            {
                "minute": key.minute,
                "account": key.account.value,
                "lane": key.lane,
                "writer": writer,
                **{name: getattr(part, name) for name in COUNTS},
            }
            for key, part in parts.items()
        ]
        if rows:
            connection.execute(self._add_to_minutes, rows)

    # -- dead writers

    def close_dead(
        self,
        alone: bool,
        host: str,
        running: Mapping[int, bool],
        now: int,
        without: Collection[str] = (),
    ) -> int:
        """Close the intervals of writers that died without closing them. Returns how many.

        alone: no other server uses this store. running: whether a process of this host runs, by
        pid; it may be another program that has the pid by now, so a lease that is over counts, too.
        now: Unix nanoseconds. without: the caller's own writers. The time since the writer's last
        flush, and the shares of requests that never ended, become `unrecorded`.
        """
        closed, others = 0, WRITERS.c.id.not_in(without)
        with self._database.begin() as connection:
            open = select(WRITERS).where(~WRITERS.c.closed, others).with_for_update()
            for row in connection.execute(open).all():
                gone = row.host == host and not running.get(row.pid, False)
                if alone or gone or row.alive_until < now:
                    self._close(connection, row, now)
                    closed += 1
        return closed

    def open_pids(self, host: str) -> list[int]:
        """The pids on this host of writers that have not closed their interval."""
        wanted = select(WRITERS.c.pid).where(~WRITERS.c.closed, WRITERS.c.host == host)
        with self._database.begin() as connection:
            return list(connection.execute(wanted).scalars())

    def _close(self, connection: Connection, row: Any, now: int) -> None:
        lost = max(0, now - row.until) if row.device_ns else 0  # 0: no engine was ever ready
        self._move(connection, row, row.until, (-row.open_ns, lost + row.open_ns))
        until = row.until + lost
        values = {"closed": True, "until": until, "open_ns": 0, "device_ns": row.device_ns + lost}
        connection.execute(update(WRITERS).where(WRITERS.c.id == row.id).values(values))

    def _follow(self, connection: Connection, row: Any, flush: Flush) -> None:
        """Bring a writer's accounts to where its earlier flushes had left them.

        Another server may have taken it for dead and written its time as lost: then that is undone.
        Or the store was restored from a backup: then what the lost flushes had is unrecorded.
        """
        missing, open = flush.device_before - row.device_ns, flush.open_before - row.open_ns
        if missing or open:
            self._move(connection, row, flush.since, (open, missing - open))

    def _move(self, connection: Connection, row: Any, at: int, change: tuple[int, int]) -> None:
        """Add to a writer's accounts `open` and `unrecorded`. change: nanoseconds for each."""
        accounts = (Account.OPEN, Account.UNRECORDED)
        parts = {
            MinuteKey(at // MINUTE, account): MinutePart(nanoseconds)
            for account, nanoseconds in zip(accounts, change, strict=True)
        }
        divide_money(parts, row.per_hour, row.device_ns)
        self._add_minutes(connection, row.id, parts)

    # -- spend

    def spend_of(self, day: int, without: Collection[str]) -> dict[SpendKey, int]:
        """The charges of a day (Unix days, UTC) by key and lane, leaving out these writers."""
        total = func.sum(SPEND.c.money)
        wanted = select(SPEND.c.key, SPEND.c.lane, total).group_by(SPEND.c.key, SPEND.c.lane)
        wanted = wanted.where(SPEND.c.day == day, SPEND.c.writer.not_in(without))
        with self._database.begin() as connection:
            rows = connection.execute(wanted).all()
        return {SpendKey(day, key, lane): int(money) for key, lane, money in rows}

    # -- retention

    def forget(self, before: int) -> bool:
        """Delete one piece of the rows older than `before`, in Unix nanoseconds. False: none left.

        A request is deleted together with the minute that holds its device time, so the remaining
        sums stay exact.
        """
        more = self._forget_minutes(before // MINUTE)
        spend = self._forget(SPEND, SPEND.c.day < before // DAY_NS)
        outcomes = self._forget(OUTCOMES, OUTCOMES.c.at < before)
        old = and_(WRITERS.c.closed, WRITERS.c.until < before)
        return more or max(spend, outcomes, self._forget(WRITERS, old)) == PIECE

    def _forget_minutes(self, before: int) -> bool:
        """Delete whole minutes with their requests, the oldest first, until a piece is gone. False:
        no rows are left before the minute `before`."""
        with self._database.begin() as connection:
            end = before
            for table in (REQUESTS, MINUTES):
                oldest = select(table.c.minute).order_by(table.c.minute)
                last = connection.execute(oldest.offset(PIECE - 1).limit(1)).scalar()
                end = end if last is None else min(end, last + 1)
            for table in (REQUESTS, MINUTES):
                connection.execute(delete(table).where(table.c.minute < end))
        return end < before

    def _forget(self, table: Table, old: Any) -> int:
        keys = list(table.primary_key.columns)
        with self._database.begin() as connection:
            rows = connection.execute(select(*keys).where(old).limit(PIECE)).all()
            for start in range(0, len(rows), AT_ONCE):
                same = [
                    and_(*[column == each for column, each in zip(keys, row, strict=True)])
                    for row in rows[start : start + AT_ONCE]
                ]
                connection.execute(delete(table).where(or_(*same)))
        return len(rows)
