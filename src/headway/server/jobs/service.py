"""JobService: the store and the tasks that work on it, from the server's start to its drain."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.types import ASGIApp

from headway.server.config.durations import SECOND
from headway.server.config.sections.jobs import JobSettings
from headway.server.config.sections.server import ServerSettings
from headway.server.config.tenant import Tenant
from headway.server.jobs.host import JobHost
from headway.server.jobs.keeper import Keeper
from headway.server.jobs.metrics import JobMetrics
from headway.server.jobs.runner import Runner, RunnerSettings
from headway.server.jobs.store import JobStore
from headway.server.jobs.validation import InputReader
from headway.server.jobs.validator import Validator
from headway.server.jobs.waiting import Waiting
from headway.server.jobs.webhooks import Endpoints, WebhookSender
from headway.server.observe.logs import Log
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.retry_after import SOON, jittered
from headway.store.files import StoredFile, bytes_of
from headway.store.ids import is_id
from headway.store.jobs import Job, open_of

MOST_OPEN = 10_000  # jobs of a tenant that have not ended
MOST_KEY = 255  # characters of an Idempotency-Key
AGAIN = 15.0  # seconds before a task that has failed goes on; by then its lease is renewed
CLOSING = 10.0  # seconds to store results when the server ends
Work = Callable[[], Coroutine[Any, Any, None]]


class JobService:
    """The jobs' service, opened before the server listens. Raises SettingError if the store cannot
    be opened."""

    def __init__(
        self, settings: JobSettings, server: ServerSettings, host: JobHost, log: Log
    ) -> None:
        self.settings, self.host, self._log = settings, host, log
        self.stall = server.connections.body_time
        self.body_bytes, self._bodies_bytes = server.limits.body_bytes, server.limits.bodies_bytes
        self.unstored_bytes = 0  # of the later calls that wait for their store
        self.keep = settings.keep // SECOND
        self.webhooks = Endpoints(settings.webhooks)
        told = self.webhooks.announce, self._count_end
        self.store = JobStore(settings, *told, host.endpoints)
        self.waiting, self.metrics = Waiting(self.store), JobMetrics()
        self.runner: Runner | None = None
        self.validator: Validator | None = None
        self.keeper: Keeper | None = None
        self._opened_at = self.store.unix()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_closing = False

    async def start(self, app: ASGIApp) -> None:
        """Resume the jobs in the store. app: answers the items."""
        store, host, log = self.store, self.host, self._log
        tenant_of = host.keys.tenant_of
        at_once = min(self.settings.at_once, host.room)
        answering = RunnerSettings(host.lane, at_once, tenant_of, host.keys.rooms)
        self.runner = Runner(app, store, answering, self.metrics, log)
        self.validator = Validator(store, self._reader, self.runner.wake, log)
        self.keeper = Keeper(
            store, self.runner, self.settings, self.metrics, log, opened_at=self._opened_at
        )
        runs = self.runner.run, self.validator.run
        works: list[Work] = [*[partial(self._take, each) for each in runs], self.keeper.run]
        if self.settings.webhooks:
            works.append(WebhookSender(store, self.webhooks, self.metrics, log).run)
        self._tasks = [asyncio.create_task(self._stands(each)) for each in works]

    async def drain(self) -> None:
        """Stop taking items, and give back the unanswered ones: the next start resumes them. A
        second call does nothing."""
        self.is_closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING)
        self._tasks = []

    async def close(self) -> None:
        """Drain and close the store. Call it once no more requests come."""
        await self.drain()
        if not await self.store.close():
            self._log.error("the store of jobs does not answer: it is left behind")

    # -- what routes ask

    def caller(self, request: Request) -> Tenant:
        """The tenant that sends the request. Raises Problem."""
        return self.host.keys.caller(request.headers)

    def may_add(self, tenant: Tenant, endpoint: str) -> None:
        """Raise Problem unless this tenant may add jobs for this endpoint now."""
        if self.is_closing:
            message = "the server is shutting down and takes no more"
            raise Problem(503, message, code="draining", retry=jittered(SOON))
        if endpoint not in self.host.endpoints:
            known = ", ".join(self.host.endpoints)
            why = f"jobs cannot be sent to {endpoint[:200]!r}; there are {known}"
            raise wrong(why, "endpoint", "invalid_value")
        if self.host.lane not in tenant.lanes:
            why = f"this key may not use the lane {self.host.lane!r}, in which jobs run"
            raise Problem(403, why, code="lane_not_allowed")

    def may_batch(self, tenant: Tenant, endpoint: str) -> None:
        """As `may_add`, for a batch."""
        self.may_add(tenant, endpoint)
        if self.host.streams(endpoint):
            why = f"{endpoint} answers with a stream, and a batch has no streams"
            raise wrong(why, "endpoint", "invalid_value")

    async def add(self, job: Job, then: Callable[[Connection], object] | None = None) -> Job:
        """Store a new job, or find the one sent with the same Idempotency-Key. then: as in
        Jobs.add. Raises Problem."""

        def checked(connection: Connection) -> None:
            if then:
                then(connection)
            self._check_open(connection, job.tenant)

        found = await self.store.ask(self.store.jobs.add, job, checked)
        if found.request_hash != job.request_hash:
            why = "another request was sent with this Idempotency-Key"
            raise Problem(409, why, code="idempotency_key_used", final=True)
        if self.runner and self.validator:
            (self.validator if job.is_batch else self.runner).wake()
        return found

    def check_bytes(self, tenant: str, connection: Connection) -> None:
        """Raise Problem if the tenant now holds more than it may. Runs within the transaction that
        stores more, which this undoes."""
        most = self.settings.tenant_bytes
        if (held := bytes_of(connection, tenant) + open_of(connection, tenant)[1]) > most:
            why = f"your files and open jobs would have {held} bytes, and may have {most}"
            raise Problem(429, f"{why}: delete some first", code="storage_full", final=True)

    def _check_open(self, connection: Connection, tenant: str) -> None:
        """Raise Problem if the tenant's open jobs, with a new one, are more than it may have."""
        if open_of(connection, tenant)[0] > MOST_OPEN:
            why = f"{MOST_OPEN} jobs have not ended yet"
            raise Problem(429, why, code="too_many_jobs", retry=jittered(SOON))
        self.check_bytes(tenant, connection)

    @contextmanager
    def storing(self, size: int) -> Iterator[None]:
        """A context for storing a later call, whose body has this size. Raises Problem if the calls
        that wait for their store would hold too much."""
        if self.unstored_bytes + size > self._bodies_bytes:
            why = "the later calls that wait to be stored hold too much"
            raise Problem(429, why, code="too_much_text", retry=jittered(SOON))
        self.unstored_bytes += size
        try:
            yield
        finally:
            self.unstored_bytes -= size

    async def find(self, tenant: Tenant, id: str, *, is_batch: bool, param: str = "id") -> Job:
        """One of the caller's jobs. param: the parameter that names it. Raises Problem."""
        what, job = "batch" if is_batch else "job", None
        if is_id(id, f"{what}_"):
            job = await self.store.ask(self.store.jobs.get, tenant.name, id)
        if job is None or job.is_batch != is_batch:
            raise Problem(404, f"there is no {what} {id[:100]!r}", param, f"no_such_{what}")
        return job

    async def file(self, tenant: Tenant, id: str, param: str = "id") -> StoredFile:
        """One of the caller's files. param: the parameter that names it. Raises Problem."""
        file = None
        if is_id(id, "file-"):
            file = await self.store.ask(self.store.files.get, tenant.name, id)
        if file is None:
            raise no_such_file(id, param)
        return file

    async def cancel(self, tenant: Tenant, id: str, *, is_batch: bool) -> Job:
        """Begin to cancel a job. An ended job stays unchanged. Raises Problem."""
        await self.find(tenant, id, is_batch=is_batch)
        await self.store.ask(self.store.jobs.cancel, id, self.store.unix())
        if self.keeper:
            self.keeper.wake()
        return await self.find(tenant, id, is_batch=is_batch)

    def callback(self, headers: Mapping[str, str]) -> str:
        """The webhook URL that the caller asks for; empty: none. Raises Problem."""
        url = headers.get("x-headway-callback", "")
        return self.webhooks.check(url) if url else ""

    def idempotency_key(self, headers: Mapping[str, str]) -> str | None:
        """The request's Idempotency-Key; None: it has none. Raises Problem if it is too long."""
        key = headers.get("idempotency-key", "")
        if len(key) > MOST_KEY:
            raise wrong(f"an Idempotency-Key has {MOST_KEY} characters at most", "idempotency-key")
        return key or None

    def _count_end(self, job: Job, now: int) -> None:
        counts = {"requests": job.total, "failed": job.failed}
        self._log.info("job ended", job=job.id, status=job.status, **counts, s=now - job.created_at)
        self.metrics.jobs["batch" if job.is_batch else "call", job.status] += 1

    def _reader(self, endpoint: str) -> InputReader:
        lines, takes_objects = self.settings.lines, endpoint in self.host.objects
        return InputReader(endpoint, lines, self.body_bytes, takes_objects)

    async def _take(self, run: Work) -> None:
        """Run a task that takes jobs, once this server has its lease."""
        assert self.keeper
        await self.keeper.leased.wait()
        await run()

    async def _stands(self, work: Work) -> None:
        """Run a task that has no end, and run it again when it fails."""
        while True:
            try:
                await work()
            except Exception:  # the task's edge
                self._log.critical("jobs have failed, and go on", exc_info=True, in_s=AGAIN)
            await asyncio.sleep(AGAIN)


def no_such_file(id: str, param: str) -> Problem:
    """The 404 for a file that the caller does not have. param: the parameter that names it."""
    return Problem(404, f"there is no file {id[:100]!r}", param, "no_such_file")
