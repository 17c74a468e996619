"""Endings: ends jobs, with their result files and their webhooks."""

import json
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection, and_, bindparam, delete, func, select, update

from headway.store.database import Database
from headway.store.deliveries import Announce
from headway.store.files import FAILED as NOT_ANSWERED
from headway.store.files import StoredFile, add_file
from headway.store.ids import new_id
from headway.store.jobs import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    FAILED,
    FINALIZING,
    IN_PROGRESS,
    VALIDATING,
    Job,
    change_job,
    job_of,
)
from headway.store.lines import unanswered_line
from headway.store.tables import ITEMS, JOBS, ItemState

PAGE = 1_024  # items ended in one transaction
REASONS = {
    CANCELLED: ("batch_cancelled", "the batch was cancelled before this request was answered"),
    FINALIZING: ("batch_expired", "the batch's time was over before this request was answered"),
}


class Endings:
    """Ends jobs. announce: called with the ended job, within the transaction that ends it."""

    def __init__(
        self, database: Database, announce: Announce, clock: Callable[[], int], keep: int
    ) -> None:
        """keep: seconds to keep result files, unless the job sets its own time."""
        self._database, self._announce, self._clock, self._keep = database, announce, clock, keep

    def fail(self, job: Job, errors: list[dict[str, object]]) -> None:
        """End a job whose input file is wrong, and delete the items already made from it."""
        now = self._clock()
        details = json.dumps({"metadata": job.metadata, "errors": errors})
        values = {"status": FAILED, "failed_at": now, "details": details}
        with self._database.begin() as connection:
            if change_job(connection, job.id, (VALIDATING,), values):
                connection.execute(delete(ITEMS).where(ITEMS.c.job == job.id))
                self._announce(connection, replace(job, status=FAILED, failed_at=now), now)

    def finish(self, connection: Connection, ids: set[str]) -> None:
        """End each of these jobs whose items have all ended. Runs within a transaction."""
        for id in sorted(ids):
            job = job_of(connection, id)
            if job and job.status == IN_PROGRESS and job.completed + job.failed >= job.total:
                failed = not job.is_batch and job.failed
                self._end(connection, job, FAILED if failed else COMPLETED)

    def end_some(self, job: Job) -> bool:
        """End the next PAGE items of a job that is cancelled or has expired; after the last of
        them, end the job. False: the job needs no more ending."""
        with self._database.begin() as connection:
            current = job_of(connection, job.id, locked=True)  # another server may be ending it
            if not current or current.status not in (CANCELLING, FINALIZING):
                return False
            open = and_(ITEMS.c.job == job.id, ITEMS.c.state == ItemState.WAITING)
            wanted = select(ITEMS.c.number, ITEMS.c.custom_id).where(open).limit(PAGE)
            wanted = wanted.order_by(ITEMS.c.number).with_for_update()  # workers may answer them
            rows = connection.execute(wanted).all()
            reason = REASONS[CANCELLED if current.status == CANCELLING else FINALIZING]
            ends = [
                {"which": number, "line": unanswered_line(job.id, number, custom_id, *reason)}
                for number, custom_id in rows
            ]
            mine = and_(ITEMS.c.job == job.id, ITEMS.c.number == bindparam("which"))
            ended = {"state": ItemState.UNANSWERED, "body": None, "worker": None}
            if ends:
                made = update(ITEMS).where(mine).values(**ended, output=bindparam("line"))
                connection.execute(made, ends)
            more = {"failed": JOBS.c.failed + len(rows)}
            if current.in_progress_at is None:  # its items were not counted yet
                more["total"] = JOBS.c.total + len(rows)
            connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(more))
            if len(rows) < PAGE:
                self._end(connection, current, current.ends_as)
        return True

    def _end(self, connection: Connection, job: Job, status: str) -> None:
        now = self._clock()
        values: dict[str, object] = {"status": status, f"{status}_at": now}
        if status == COMPLETED:
            values["finalizing_at"] = now
        if not change_job(connection, job.id, (job.status,), values):
            return
        if job.is_batch:
            answered = self._results(connection, job, (ItemState.ANSWERED,), now)
            failed = self._results(connection, job, NOT_ANSWERED, now)
            files = {"output_file": answered, "error_file": failed}
            change_job(connection, job.id, (status,), files)
        ended = job_of(connection, job.id)
        assert ended
        self._announce(connection, ended, now)

    def _results(
        self, connection: Connection, job: Job, states: tuple[ItemState, ...], now: int
    ) -> str | None:
        """Add a file of the results in these states. Returns its id; None: there are no results."""
        size = func.coalesce(func.sum(func.length(ITEMS.c.output)), 0)
        mine = and_(ITEMS.c.job == job.id, ITEMS.c.state.in_(states))
        total = connection.execute(select(size).where(mine)).scalar_one()
        if not total:
            return None
        is_errors = states == NOT_ANSWERED
        name = f"{job.id}_{'error' if is_errors else 'output'}.jsonl"
        expires = now + (job.output_expires_after or self._keep)
        file = StoredFile(
            new_id("file-", now),
            *(job.tenant, "batch_output", name, int(total), now, expires),
            job=job.id,
            is_errors=is_errors,
        )
        add_file(connection, file)
        return file.id
