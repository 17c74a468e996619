"""Jobs: batches, and calls whose answers are fetched later.

validating --> in_progress --> completed, or failed (calls only)
    |              |
    |              +--> cancelling --> cancelled
    |              +--> finalizing --> expired
    +--> failed, cancelling, finalizing
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from headway.store.database import Database, StoreError
from headway.store.files import CLEARED, first_piece
from headway.store.tables import DELIVERIES, FILES, ITEMS, JOBS

VALIDATING, IN_PROGRESS, FINALIZING = "validating", "in_progress", "finalizing"
COMPLETED, FAILED, EXPIRED = "completed", "failed", "expired"
CANCELLING, CANCELLED = "cancelling", "cancelled"
UNTIL_CANCELLED = (VALIDATING, IN_PROGRESS)  # jobs that can be cancelled or expire
OPEN = (VALIDATING, IN_PROGRESS, CANCELLING, FINALIZING)
ENDED = (COMPLETED, FAILED, EXPIRED, CANCELLED)
PAGE = 100  # jobs forgotten at a time
Endpoints = Collection[str] | None  # None: all


@dataclass(frozen=True, slots=True)
class Job:
    """A row of `jobs`. Times are Unix seconds."""

    id: str
    tenant: str
    key: str
    is_batch: bool
    endpoint: str
    window: int
    created_at: int
    expires_at: int
    status: str = VALIDATING
    ends_as: str = COMPLETED
    worker: str | None = None
    model: str = ""
    input_file: str | None = None
    input_bytes: int = 0  # of its requests; a batch's are those of its input file
    output_file: str | None = None
    error_file: str | None = None
    output_expires_after: int | None = None
    details: str = "{}"
    callback: str = ""
    idempotency_key: str | None = None
    request_hash: str = ""
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @property
    def metadata(self) -> dict[str, str] | None:
        """The caller's metadata, as given."""
        found: dict[str, str] | None = json.loads(self.details).get("metadata")
        return found

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The errors in its input file."""
        found: list[dict[str, Any]] = json.loads(self.details).get("errors", [])
        return found

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, so that its status is final."""
        return self.status in ENDED


class Jobs:
    """The jobs of all tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: Job, then: Callable[[Connection], object] | None = None) -> Job:
        """Store a job and return it, or return the tenant's job with the same idempotency key.

        then: called within the transaction, once the job is stored. If it raises, it is not.
        """
        try:
            with self._database.begin() as connection:
                if same := same_job(connection, job):
                    return same
                add_job(connection, job)
                if then:
                    then(connection)
        except StoreError as error:
            if isinstance(error.__cause__, IntegrityError):  # another server was faster
                with self._database.begin() as connection:
                    if same := same_job(connection, job):
                        return same
            raise
        return job

    def get(self, tenant: str, id: str) -> Job | None:
        """One of the tenant's jobs; None: the tenant has none with this id."""
        with self._database.begin() as connection:
            job = job_of(connection, id)
        return job if job and job.tenant == tenant else None

    def page(self, tenant: str, after: str, limit: int, *, batches: bool) -> list[Job]:
        """A page of the tenant's batches or calls older than `after` (empty: any), newest first."""
        wanted = select(JOBS).where(JOBS.c.tenant == tenant, JOBS.c.is_batch.is_(batches))
        if after:
            wanted = wanted.where(JOBS.c.id < after)
        with self._database.begin() as connection:
            rows = connection.execute(wanted.order_by(JOBS.c.id.desc()).limit(limit))
            return [_job(row) for row in rows]

    def having(self, *statuses: str) -> list[Job]:
        """All jobs with one of these statuses, the oldest first."""
        wanted = select(JOBS).where(JOBS.c.status.in_(statuses)).order_by(JOBS.c.id)
        with self._database.begin() as connection:
            return [_job(row) for row in connection.execute(wanted)]

    def claim(self, worker: str, endpoints: Endpoints = None) -> Job | None:
        """Claim for this worker the oldest batch in validation that no other worker holds.
        endpoints: of the batches that it can answer."""
        free = JOBS.c.worker.is_(None) | (JOBS.c.worker == worker)
        if endpoints is not None:
            free &= JOBS.c.endpoint.in_(list(endpoints))
        wanted = select(JOBS).where(JOBS.c.status == VALIDATING, free).order_by(JOBS.c.id).limit(1)
        with self._database.begin() as connection:
            row = connection.execute(wanted.with_for_update(skip_locked=True)).one_or_none()
            if row is None:
                return None
            connection.execute(update(JOBS).where(JOBS.c.id == row.id).values(worker=worker))
            return _job(row)

    def cancel(self, id: str, now: int) -> None:
        """Begin to cancel a job that is validating or in progress."""
        values = {"status": CANCELLING, "ends_as": CANCELLED, "cancelling_at": now}
        with self._database.begin() as connection:
            change_job(connection, id, UNTIL_CANCELLED, values)

    def expire(self, now: int) -> None:
        """Begin to end all jobs that have expired."""
        over = JOBS.c.status.in_(UNTIL_CANCELLED) & (JOBS.c.expires_at <= now)
        values = {"status": FINALIZING, "ends_as": EXPIRED, "finalizing_at": now}
        with self._database.begin() as connection:
            connection.execute(update(JOBS).where(over).values(values))

    def running(self, ids: Iterable[str]) -> set[str]:
        """The ids, among these, of jobs in progress."""
        mine = JOBS.c.id.in_(list(ids)) & (JOBS.c.status == IN_PROGRESS)
        with self._database.begin() as connection:
            return set(connection.execute(select(JOBS.c.id).where(mine)).scalars())

    def ended(self, ids: Iterable[str]) -> list[str]:
        """The ids, among these, of jobs that have ended."""
        mine = JOBS.c.id.in_(list(ids)) & JOBS.c.status.in_(ENDED)
        with self._database.begin() as connection:
            return list(connection.execute(select(JOBS.c.id).where(mine)).scalars())

    def old(self, before: int, now: int, *, delivers: bool = True) -> list[str]:
        """The ids of up to PAGE ended jobs that expired before `before`. A job stays while it has
        an unexpired file and, if `delivers`, until its webhooks are delivered or given up."""
        kept = select(FILES.c.job).where(FILES.c.job.is_not(None), FILES.c.expires_at > now)
        due = select(DELIVERIES.c.job).where(DELIVERIES.c.due_at.is_not(None))
        old = select(JOBS.c.id).where(JOBS.c.expires_at < before, JOBS.c.status.in_(ENDED))
        old = old.where(JOBS.c.id.not_in(kept))
        if delivers:
            old = old.where(JOBS.c.id.not_in(due))
        with self._database.begin() as connection:
            return list(connection.execute(old.limit(PAGE)).scalars())

    def drop_items(self, job: str) -> bool:
        """Delete the next items of a job that has ended. False: it had no more."""
        size = func.length(ITEMS.c.output)
        wanted = select(ITEMS.c.number, size).where(ITEMS.c.job == job).limit(CLEARED)
        with self._database.begin() as connection:
            if found := connection.execute(wanted.order_by(ITEMS.c.number)).all():
                these = ITEMS.c.number <= first_piece(found)
                connection.execute(delete(ITEMS).where(ITEMS.c.job == job, these))
        return bool(found)

    def forget(self, ids: Collection[str]) -> None:
        """Delete these jobs, which have ended, with what is left of their items."""
        with self._database.begin() as connection:
            connection.execute(delete(FILES).where(FILES.c.job.in_(ids)))
            connection.execute(delete(JOBS).where(JOBS.c.id.in_(ids)))


def add_job(connection: Connection, job: Job) -> None:
    """Add a job, within a transaction."""
    values = {name: getattr(job, name) for name in Job.__slots__}
    connection.execute(insert(JOBS).values(values))


def set_input_bytes(connection: Connection, job: Job) -> bool:
    """Give a batch the size of its input file, within a transaction. False: its tenant has no such
    file."""
    size = select(FILES.c.bytes).where(
        FILES.c.id == job.input_file, FILES.c.tenant == job.tenant, FILES.c.is_whole
    )
    found = connection.execute(size).scalar()
    if found is not None:
        mine = JOBS.c.id == job.id
        connection.execute(update(JOBS).where(mine).values(input_bytes=found))
    return found is not None


def open_of(connection: Connection, tenant: str) -> tuple[int, int]:
    """How many of the tenant's jobs have not ended, and the bytes of their requests. Runs within a
    transaction."""
    mine = JOBS.c.status.in_(OPEN) & (JOBS.c.tenant == tenant)
    wanted = select(func.count(), func.coalesce(func.sum(JOBS.c.input_bytes), 0)).where(mine)
    count, size = connection.execute(wanted).one()
    return count, int(size)


def job_of(connection: Connection, id: str, *, locked: bool = False) -> Job | None:
    """Read a job, within a transaction. locked: others cannot change it until that ends."""
    wanted = select(JOBS).where(JOBS.c.id == id)
    row = connection.execute(wanted.with_for_update() if locked else wanted).one_or_none()
    return _job(row) if row else None


def lock_jobs(connection: Connection, ids: Collection[str]) -> None:
    """Lock these jobs, within a transaction that then changes their items. The fixed order, by id,
    prevents a deadlock between two servers."""
    if ids:
        wanted = select(JOBS.c.id).where(JOBS.c.id.in_(ids)).order_by(JOBS.c.id)
        connection.execute(wanted.with_for_update()).all()


def same_job(connection: Connection, job: Job) -> Job | None:
    """The stored job of the same tenant with the same idempotency key; None: there is none."""
    if job.idempotency_key is None:
        return None
    same = (JOBS.c.tenant == job.tenant) & (JOBS.c.idempotency_key == job.idempotency_key)
    row = connection.execute(select(JOBS).where(same)).one_or_none()
    return _job(row) if row else None


def change_job(
    connection: Connection, id: str, statuses: Iterable[str], values: dict[str, Any]
) -> bool:
    """Change the job if its status is one of these. Returns whether it was."""
    mine = (JOBS.c.id == id) & JOBS.c.status.in_(list(statuses))
    return connection.execute(update(JOBS).where(mine).values(values)).rowcount == 1


def _job(row: Row[Any]) -> Job:
    return Job(**row._mapping)
