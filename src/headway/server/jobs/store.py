"""JobStore: the parts of the jobs' store, and the one thread that uses them."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy import Connection

from headway.server.config.durations import SECOND
from headway.server.config.sections.jobs import JobSettings
from headway.server.observe.logs import Log
from headway.server.store_clock import StoreClock
from headway.server.store_thread import StoreThread
from headway.store.database import Database, StoreError
from headway.store.deliveries import Announce, Deliveries
from headway.store.endings import Endings
from headway.store.files import Files
from headway.store.ids import new_id
from headway.store.items.items import Items
from headway.store.jobs import Endpoints, Job, Jobs

Found = TypeVar("Found")


class JobStore:
    """The jobs' store as one server uses it. Raises SettingError if it cannot be opened.

    Use its parts in its thread only: `await store.ask(store.jobs.get, tenant, id)`.
    announce: called for each ended job, within the transaction that ends it. told: called for it
    after that transaction, in the store's thread. endpoints: those that this server answers. Jobs
    for others are left to the servers that share the store; if it is alone, it takes all.
    """

    def __init__(
        self,
        settings: JobSettings,
        announce: Announce,
        told: Callable[[Job, int], None],
        endpoints: Endpoints = None,
    ) -> None:
        self._announce, self._told = announce, told
        self._ended: list[tuple[Job, int]] = []  # jobs that the current call has ended
        self._outage: Log | None = None  # where it was logged that the store is away
        self._database = Database(settings.store)
        self.is_alone = self._database.is_file
        self.endpoints = None if self.is_alone else endpoints
        self.name, time = self._database.name, StoreClock(self._database)
        # `now` asks the store, in its thread; `unix` does not. All times of jobs are by its clock.
        self.now, self.unix = time.ask, time.seconds
        self.files, self.jobs = Files(self._database), Jobs(self._database)
        self.deliveries = Deliveries(self._database)
        keep = settings.keep // SECOND
        self.endings = Endings(self._database, self._end, self.unix, keep)
        self.worker = new_id("worker-", self.unix())
        mine = self.worker, self.endings.finish, self.endpoints
        self.items = Items(self._database, *mine)
        self._thread = StoreThread(self._database, "store")

    async def ask(self, function: Callable[..., Found], *given: object) -> Found:
        """Call a function in the store's thread. Raises StoreError."""
        found: Found = await self._thread.ask(self._call, function, *given)
        if self._outage:
            self._outage.info("the store of jobs is back")
            self._outage = None
        return found

    def log_outage(self, log: Log, error: StoreError) -> None:
        """Log that jobs wait for the store, once until it is back."""
        if not self._outage:
            log.error("jobs wait for their store", cause=str(error))
            self._outage = log

    def _call(self, function: Callable[..., Found], *given: object) -> Found:
        self._ended.clear()
        found = function(*given)
        for job, now in self._ended:
            self._told(job, now)
        return found

    def _end(self, connection: Connection, job: Job, now: int) -> None:
        self._announce(connection, job, now)
        self._ended.append((job, now))

    async def delete_file(self, id: str) -> None:
        """Delete a file piece by piece, so that other calls do not wait long. Raises StoreError."""
        while await self.ask(self.files.clear_some, id):
            pass
        await self.ask(self.files.delete, id)

    async def next_of(self, pieces: Iterator[bytes]) -> bytes:
        """The next piece of a file; empty at its end. Raises StoreError."""
        return await self.ask(next, pieces, b"")

    async def close(self) -> bool:
        """Close the database and the thread, once the store is unused. False: the database does
        not answer, and both are left behind."""
        return await self._thread.close()
