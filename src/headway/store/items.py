"""Items: the requests of jobs, and the one result that each gets."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    func,
    insert,
    select,
    text,
    true,
    update,
)

from headway.store.database import Database
from headway.store.jobs import IN_PROGRESS, VALIDATING, Job, change_job, lock_jobs
from headway.store.tables import ITEMS, JOBS, WORKERS, ItemState

MOST_ATTEMPTS = 10  # of an item at whose end the process ended too
Finish = Callable[[Connection, set[str]], None]  # ends those of these jobs whose items have ended


@dataclass(frozen=True, slots=True)
class NewItem:
    """A request that is stored, to be answered later."""

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
    details: str = "{}"  # of its job

    @property
    def headers(self) -> dict[str, str]:
        """Of a call: those that its caller gave it beside its content type."""
        found: dict[str, str] = json.loads(self.details).get("headers", {})
        return found


@dataclass(frozen=True, slots=True)
class GivenBack:
    """An item that could not be answered now. counts: whether this was one of its attempts."""

    item: Item
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What an item was answered."""

    job: str
    number: int
    status_code: int
    content_type: str
    output: bytes  # as ITEMS has it
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Items:
    """The items of all jobs, as one worker takes and answers them.

    An item is taken in one transaction and answered in another one. It is answered only as long as
    this worker has it, so that it gets one result whatever becomes of its workers.
    finish: called within the transaction that answers items.
    """

    def __init__(self, database: Database, worker: str, finish: Finish) -> None:
        self._database, self._worker, self._finish = database, worker, finish

    # A batch that this worker validates. Each returns False if another worker has it now, because
    # this one seemed to be dead, or if nobody wants it any more.

    def clear(self, job: str) -> bool:
        """Drop the items of a validation that was cut off."""
        with self._database.begin() as connection:
            if is_mine := self._validates(connection, job):
                connection.execute(delete(ITEMS).where(ITEMS.c.job == job))
        return is_mine

    def add(self, job: str, tenant: str, items: Iterable[NewItem]) -> bool:
        """Its next items."""
        rows = [item_row(job, tenant, each, rank=1) for each in items]
        with self._database.begin() as connection:
            if is_mine := self._validates(connection, job):
                connection.execute(insert(ITEMS), rows)
        return is_mine

    def open(self, job: str, total: int, model: str, now: int) -> bool:
        """All of its items are there: they may be taken. If there are none, it has ended."""
        values = {"status": IN_PROGRESS, "in_progress_at": now, "total": total, "model": model}
        with self._database.begin() as connection:
            if is_mine := self._validates(connection, job):
                change_job(connection, job, (VALIDATING,), values)
                self._finish(connection, {job})
        return is_mine

    def result(self, job: str) -> Result | None:
        """Of a call; None until it was answered."""
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
        resting: Collection[str] = (),
        resting_jobs: Collection[str] = (),
    ) -> list[Item]:
        """Store these results, give these items back, and take as many others, none of the resting
        tenants and jobs. One transaction for all."""
        with self._database.begin() as connection:
            lock_jobs(connection, {one.job for one in results} | {one.item.job for one in back})
            self._record(connection, results)
            for each in back:
                attempts = ITEMS.c.attempts - (0 if each.counts else 1)
                given = update(ITEMS).where(self._mine(each.item))
                connection.execute(given.values(worker=None, attempts=attempts))
            open_ = ITEMS.c.job.not_in(resting_jobs) if resting_jobs else true()
            return self._take(connection, most, resting, open_) if most > 0 else []

    def leave(self) -> None:
        """Give back all that this worker has, as if it had never been taken."""
        mine, fewer = ITEMS.c.worker == self._worker, ITEMS.c.attempts - 1
        with self._database.begin() as connection:
            connection.execute(update(ITEMS).where(mine).values(attempts=fewer))
            _free(connection, WORKERS.c.id == self._worker)

    def free_lost(self, known: Collection[tuple[str, int]]) -> None:
        """Give back what this worker took without hearing of it, when the store failed in between.

        known: jobs and numbers of the items that it knows to have.
        """
        mine = (ITEMS.c.worker == self._worker) & (ITEMS.c.state == ItemState.WAITING)
        with self._database.begin() as connection:
            found = connection.execute(select(ITEMS.c.job, ITEMS.c.number).where(mine)).all()
            for job, number in {tuple(each) for each in found} - set(known):
                lost = mine & (ITEMS.c.job == job) & (ITEMS.c.number == number)
                values = {"worker": None, "attempts": ITEMS.c.attempts - 1}
                connection.execute(update(ITEMS).where(lost).values(values))

    def keep_alive(self, now: int, until: int) -> None:
        """Say that this worker is alive, and free what workers have that are not. Called before it
        takes anything: else others free that."""
        mine = WORKERS.c.id == self._worker
        with self._database.begin() as connection:
            if not connection.execute(
                update(WORKERS).where(mine).values(alive_until=until)
            ).rowcount:
                connection.execute(insert(WORKERS).values(id=self._worker, alive_until=until))
            _free(connection, WORKERS.c.alive_until < now)

    def free_all(self) -> None:
        """Free what all other workers have: this one has the store alone."""
        with self._database.begin() as connection:
            _free(connection, WORKERS.c.id != self._worker)

    def count_waiting(self) -> int:
        """Of all jobs, items that nobody answers now."""
        wanted = select(func.count()).select_from(ITEMS).where(_waiting())
        with self._database.begin() as connection:
            return connection.execute(wanted).scalar_one()

    def crashed(self) -> list[Item]:
        """Take waiting items that were begun too often: the process ended with them each time."""
        often = _waiting() & (ITEMS.c.attempts >= MOST_ATTEMPTS)
        with self._database.begin() as connection:
            return self._claim(connection, often, 64)

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

    def _take(
        self,
        connection: Connection,
        most: int,
        resting: Collection[str],
        open_: ColumnElement[bool],
    ) -> list[Item]:
        """As many of each tenant; of a tenant its calls and then its batches, the oldest first. An
        item that was begun before, and did not end, goes behind those that were not."""
        open = select(JOBS.c.tenant).where(JOBS.c.status == IN_PROGRESS).distinct()
        found = connection.execute(open.order_by(JOBS.c.tenant)).scalars()
        tenants, taken = [each for each in found if each not in resting], list[Item]()
        fresh = _waiting() & (ITEMS.c.attempts < MOST_ATTEMPTS) & open_
        for left, tenant in zip(range(len(tenants), 0, -1), tenants, strict=True):
            share = -(-(most - len(taken)) // left)
            taken += self._claim(connection, fresh & (ITEMS.c.tenant == tenant), share)
        if tenants and len(taken) < most:  # those that had less than their share left it
            mine = fresh & ITEMS.c.tenant.in_(tenants)
            taken += self._claim(connection, mine, most - len(taken))
        return taken

    def _claim(self, connection: Connection, wanted: ColumnElement[bool], most: int) -> list[Item]:
        columns = [ITEMS.c[name] for name in ("job", "number", "custom_id", "tenant", "attempts")]
        columns += [ITEMS.c[name] for name in ("body", "content_type", "accept")]
        of_job = "key", "endpoint", "is_batch", "expires_at", "details"
        columns += [JOBS.c[name] for name in of_job]
        found = (
            select(*columns)
            .join(JOBS, JOBS.c.id == ITEMS.c.job)
            .where(wanted, JOBS.c.status == IN_PROGRESS)
            .order_by(ITEMS.c.rank, ITEMS.c.attempts, ITEMS.c.job, ITEMS.c.number)
            .limit(most)
            .with_for_update(of=ITEMS, skip_locked=True)  # SQLite has one writer, and no such words
        )
        taken = [Item(**row._mapping) for row in connection.execute(found)]
        for each in taken:
            mine = and_(ITEMS.c.job == each.job, ITEMS.c.number == each.number)
            values = {"worker": self._worker, "attempts": ITEMS.c.attempts + 1}
            connection.execute(update(ITEMS).where(mine).values(values))
        return taken

    def _validates(self, connection: Connection, job: str) -> bool:
        mine = (JOBS.c.id == job) & (JOBS.c.worker == self._worker) & (JOBS.c.status == VALIDATING)
        wanted = select(JOBS.c.id).where(mine).with_for_update()
        return connection.execute(wanted).one_or_none() is not None

    def _mine(self, item: Item | Result) -> ColumnElement[bool]:
        same = and_(ITEMS.c.job == item.job, ITEMS.c.number == item.number)
        return same & (ITEMS.c.state == ItemState.WAITING) & (ITEMS.c.worker == self._worker)


def add_item(connection: Connection, job: Job, item: NewItem) -> None:
    """The one item of a call, within the transaction that adds the job."""
    connection.execute(insert(ITEMS).values(item_row(job.id, job.tenant, item, rank=0)))


def item_row(job: str, tenant: str, item: NewItem, *, rank: int) -> dict[str, object]:
    """Its row before anybody has taken it."""
    values = {name: getattr(item, name) for name in NewItem.__slots__}
    state = {"state": ItemState.WAITING, "attempts": 0}
    return {"job": job, "tenant": tenant, "rank": rank, **values, **state}


def _waiting() -> ColumnElement[bool]:
    """In the words of the index."""
    return and_(ITEMS.c.state == text("0"), ITEMS.c.worker.is_(None))


def _free(connection: Connection, dead: ColumnElement[bool]) -> None:
    """Drop these workers, and free what no worker has that is left. An item that was being answered
    keeps its attempt."""
    connection.execute(delete(WORKERS).where(dead))
    for table in (ITEMS, JOBS):
        theirs = table.c.worker.is_not(None) & table.c.worker.not_in(select(WORKERS.c.id))
        connection.execute(update(table).where(theirs).values(worker=None))
