"""Items: the requests of jobs, and the one result of each."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, select, update

from headway.store.database import Database
from headway.store.items.taking import MOST_ATTEMPTS, Place, Taking, Who, waiting
from headway.store.jobs import IN_PROGRESS, VALIDATING, Endpoints, Job, change_job, lock_jobs
from headway.store.tables import ITEMS, JOBS, WORKERS, ItemState

NO_LIMITS: Mapping[Who, int] = MappingProxyType({})
Finish = Callable[[Connection, set[str]], None]  # ends each of these jobs whose items have ended


@dataclass(frozen=True, slots=True)
class NewItem:
    """A request to store, and to answer later."""

    number: int
    custom_id: str
    body: bytes
    content_type: str = "application/json"
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class Item:
    """A request that a worker has taken."""

    job: str
    number: int
    custom_id: str
    tenant: str
    key: str
    endpoint: str
    is_batch: bool
    expires_at: int
    attempts: int
    body: bytes
    content_type: str
    accept: str
    details: str = "{}"  # the job's, as JSON

    @property
    def who(self) -> Who:
        """Whose limits its request counts against."""
        return self.tenant, self.key

    @property
    def headers(self) -> dict[str, str]:
        """The further headers that a call is answered with; a batch's item has none."""
        found: dict[str, str] = json.loads(self.details).get("headers", {})
        return found


@dataclass(frozen=True, slots=True)
class GivenBack:
    """An item that could not be answered now. counts: whether this try counts as an attempt."""

    item: Item
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to an item."""

    job: str
    number: int
    status_code: int
    content_type: str
    output: bytes  # as in ITEMS
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Items:
    """The items of all jobs, as one worker takes and answers them.

    One transaction takes an item, another stores its answer. The answer is stored only while this
    worker holds the item, so each item gets exactly one result even if workers die.
    finish: called within the transaction that stores answers. endpoints: of the items that the
    worker can answer.
    """

    def __init__(
        self, database: Database, worker: str, finish: Finish, endpoints: Endpoints = None
    ) -> None:
        self._database, self._worker, self._finish = database, worker, finish
        self._taking = Taking(worker, endpoints)

    # For a batch that this worker validates. Each returns False if another worker holds the batch
    # now, because this worker seemed to be dead, or if the batch is no longer in validation.

    def clear(self, job: str) -> bool:
        """Delete the items of an interrupted validation."""
        with self._database.begin() as connection:
            if is_mine := self._validates(connection, job):
                connection.execute(delete(ITEMS).where(ITEMS.c.job == job))
        return is_mine

    def add(self, job: str, tenant: str, items: Iterable[NewItem]) -> bool:
        """Add the batch's next items."""
        rows = [item_row(job, tenant, each, rank=1) for each in items]
        with self._database.begin() as connection:
            if is_mine := self._validates(connection, job):
                connection.execute(insert(ITEMS), rows)
        return is_mine

    def open(self, job: str, total: int, model: str, now: int) -> bool:
        """Let workers take the items, which are all stored now. A batch without items ends."""
        values = {"status": IN_PROGRESS, "in_progress_at": now, "total": total, "model": model}
        with self._database.begin() as connection:
            if is_mine := self._validates(connection, job):
                change_job(connection, job, (VALIDATING,), values)
                self._finish(connection, {job})
        return is_mine

    def result(self, job: str) -> Result | None:
        """The result of a call; None until it is answered."""
        names = ("job", "number", "status_code", "content_type", "output")
        wanted = select(*[ITEMS.c[name] for name in names])
        mine = and_(ITEMS.c.job == job, ITEMS.c.status_code.is_not(None))
        with self._database.begin() as connection:
            row = connection.execute(wanted.where(mine)).one_or_none()
        return Result(**row._mapping) if row else None

    def exchange(
        self,
        results: Sequence[Result],
        back: Sequence[GivenBack],
        most: int,
        rooms: Mapping[Who, int] = NO_LIMITS,
        resting_jobs: Collection[str] = (),
    ) -> list[Item]:
        """In one transaction, store these results, give these items back, and take up to `most`
        others, none from the resting jobs.

        rooms: how many of each key; a key that is not named may have any number.
        """
        with self._database.begin() as connection:
            lock_jobs(connection, {one.job for one in results} | {one.item.job for one in back})
            self._record(connection, results)
            for each in back:
                attempts = ITEMS.c.attempts - (0 if each.counts else 1)
                given = update(ITEMS).where(self._mine(each.item))
                connection.execute(given.values(worker=None, attempts=attempts))
            if most <= 0:
                return []
            chosen = self._taking.choose(connection, most, rooms, resting_jobs)
            return self._claim(connection, chosen) if chosen else []

    def leave(self) -> None:
        """Give back all items that this worker holds, without counting attempts."""
        mine, fewer = ITEMS.c.worker == self._worker, ITEMS.c.attempts - 1
        with self._database.begin() as connection:
            connection.execute(update(ITEMS).where(mine).values(attempts=fewer))
            _free(connection, WORKERS.c.id == self._worker)

    def free_lost(self, known: Collection[tuple[str, int]]) -> None:
        """Give back items that the store assigned to this worker, but failed before it reported.

        known: (job, number) of each item that the worker knows it holds.
        """
        mine = (ITEMS.c.worker == self._worker) & (ITEMS.c.state == ItemState.WAITING)
        with self._database.begin() as connection:
            found = connection.execute(select(ITEMS.c.job, ITEMS.c.number).where(mine)).all()
            for job, number in {tuple(each) for each in found} - set(known):
                lost = mine & (ITEMS.c.job == job) & (ITEMS.c.number == number)
                values = {"worker": None, "attempts": ITEMS.c.attempts - 1}
                connection.execute(update(ITEMS).where(lost).values(values))

    def keep_alive(self, now: int, until: int) -> None:
        """Renew this worker's lease, and free what dead workers hold. Call it before the worker
        takes anything; otherwise other servers free its items. now, until: as `Database.now`.

        If its own lease was over, the store may have been away for all workers. It then frees
        nothing yet, so that the others can renew theirs and store what they have answered.
        """
        mine = WORKERS.c.id == self._worker
        with self._database.begin() as connection:
            wanted = select(WORKERS.c.alive_until).where(mine).with_for_update()
            last = connection.execute(wanted).scalar()
            if last is None:
                connection.execute(insert(WORKERS).values(id=self._worker, alive_until=until))
            else:
                connection.execute(update(WORKERS).where(mine).values(alive_until=until))
            if last is None or last >= now:
                _free(connection, WORKERS.c.alive_until < now)

    def free_all(self) -> None:
        """Free what all other workers hold, when this worker has the store alone."""
        with self._database.begin() as connection:
            _free(connection, WORKERS.c.id != self._worker)

    def count_waiting(self) -> int:
        """The number of waiting items of all jobs, without those that a worker holds."""
        wanted = select(func.count()).select_from(ITEMS).where(waiting())
        with self._database.begin() as connection:
            return connection.execute(wanted).scalar_one()

    def crashed(self) -> list[Item]:
        """Take up to 64 waiting items with MOST_ATTEMPTS attempts: the process kept ending."""
        often = waiting() & (ITEMS.c.attempts >= MOST_ATTEMPTS)
        wanted = (
            select(ITEMS.c.job, ITEMS.c.number)
            .join(JOBS, JOBS.c.id == ITEMS.c.job)
            .where(often, JOBS.c.status == IN_PROGRESS)
            .order_by(ITEMS.c.rank, ITEMS.c.attempts, ITEMS.c.job, ITEMS.c.number)
            .limit(64)
            .with_for_update(of=ITEMS, skip_locked=True)  # left out for SQLite: it has one writer
        )
        with self._database.begin() as connection:
            places = [(job, number) for job, number in connection.execute(wanted)]
            return self._claim(connection, places) if places else []

    # -- within a transaction

    def _record(self, connection: Connection, results: Sequence[Result]) -> None:
        counts: dict[str, Counter[str]] = {}
        for each in results:
            is_good = 200 <= each.status_code < 300
            values = {
                "state": ItemState.ANSWERED if is_good else ItemState.FAILED,
                "status_code": each.status_code,
                "content_type": each.content_type,
                "output": each.output,
                "body": None,
                "worker": None,
            }
            if connection.execute(update(ITEMS).where(self._mine(each)).values(values)).rowcount:
                of_job = counts.setdefault(each.job, Counter())
                of_job["completed" if is_good else "failed"] += 1
                for name in ("input_tokens", "cached_tokens", "output_tokens"):
                    of_job[name] += getattr(each, name)
        for job, found in counts.items():
            more = {name: JOBS.c[name] + count for name, count in found.items()}
            connection.execute(update(JOBS).where(JOBS.c.id == job).values(more))
        self._finish(connection, set(counts))

    def _claim(self, connection: Connection, places: Sequence[Place]) -> list[Item]:
        """Take these items, which this transaction has locked."""
        columns = [ITEMS.c[name] for name in ("job", "number", "custom_id", "tenant", "attempts")]
        columns += [ITEMS.c[name] for name in ("body", "content_type", "accept")]
        of_job = "key", "endpoint", "is_batch", "expires_at", "details"
        columns += [JOBS.c[name] for name in of_job]
        wanted = select(*columns).join(JOBS, JOBS.c.id == ITEMS.c.job)
        by_job, rows = dict[str, list[int]](), dict[Place, Row[*tuple[Any, ...]]]()
        for job, number in places:
            by_job.setdefault(job, []).append(number)
        for job, numbers in by_job.items():
            these = (ITEMS.c.job == job) & ITEMS.c.number.in_(numbers)
            found = connection.execute(wanted.where(these)).all()
            rows |= {(job, row.number): row for row in found}
        for job, number in places:
            mine = and_(ITEMS.c.job == job, ITEMS.c.number == number)
            values = {"worker": self._worker, "attempts": ITEMS.c.attempts + 1}
            connection.execute(update(ITEMS).where(mine).values(values))
        return [Item(**rows[each]._mapping) for each in places]

    def _validates(self, connection: Connection, job: str) -> bool:
        mine = (JOBS.c.id == job) & (JOBS.c.worker == self._worker) & (JOBS.c.status == VALIDATING)
        wanted = select(JOBS.c.id).where(mine).with_for_update()
        return connection.execute(wanted).one_or_none() is not None

    def _mine(self, item: Item | Result) -> ColumnElement[bool]:
        same = and_(ITEMS.c.job == item.job, ITEMS.c.number == item.number)
        return same & (ITEMS.c.state == ItemState.WAITING) & (ITEMS.c.worker == self._worker)


def add_item(connection: Connection, job: Job, item: NewItem) -> None:
    """Add the one item of a call, within the transaction that adds its job."""
    connection.execute(insert(ITEMS).values(item_row(job.id, job.tenant, item, rank=0)))


def item_row(job: str, tenant: str, item: NewItem, *, rank: int) -> dict[str, object]:
    """The row of a new item."""
    values = {name: getattr(item, name) for name in NewItem.__slots__}
    state = {"state": ItemState.WAITING, "attempts": 0}
    return {"job": job, "tenant": tenant, "rank": rank, **values, **state}


def _free(connection: Connection, dead: ColumnElement[bool]) -> None:
    """Delete these workers, and free the items and jobs that no remaining worker holds. Attempts
    stay counted."""
    connection.execute(delete(WORKERS).where(dead))
    for table in (ITEMS, JOBS):
        theirs = table.c.worker.is_not(None) & table.c.worker.not_in(select(WORKERS.c.id))
        connection.execute(update(table).where(theirs).values(worker=None))
