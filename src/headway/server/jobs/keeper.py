"""Keeper: ends cancelled and expired jobs, and renews this server's lease."""

import asyncio
from contextlib import suppress
from functools import partial

from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.config.sections.jobs import JobSettings
from headway.server.jobs.metrics import JobMetrics
from headway.server.jobs.runner import Runner, failed
from headway.server.jobs.store import JobStore
from headway.server.observe.logs import Log
from headway.server.protocol.problem import Problem
from headway.store.database import StoreError
from headway.store.items.taking import MOST_ATTEMPTS
from headway.store.jobs import CANCELLING, FINALIZING

LOOK = 1.0  # seconds between two looks at the store
LEASE = 30  # seconds without a renewal, after which other servers take over this server's work
RENEWED = 10  # seconds between two renewals
CLEANED = 60  # seconds between two deletions of expired files and old jobs
UPLOAD = 86_400  # seconds after which an unfinished upload is deleted


class Keeper:
    """Looks after all jobs of a store, whichever server runs them."""

    def __init__(
        self,
        store: JobStore,
        runner: Runner,
        settings: JobSettings,
        metrics: JobMetrics,
        log: Log,
        opened_at: int = 0,
    ) -> None:
        """opened_at: when this server opened the store, in Unix seconds by the store's clock."""
        self._opened_at = opened_at
        self._store, self._runner, self._metrics, self._log = store, runner, metrics, log
        self._keep = settings.keep // SECOND
        self._told = {"delivers": bool(settings.webhooks)}
        self._renew_at = self._clean_at = 0  # on the monotonic clock
        self._work = asyncio.Event()
        self.leased = asyncio.Event()  # set once this server has its lease

    def wake(self) -> None:
        """Look at once, because a job was cancelled."""
        self._work.set()

    async def run(self) -> None:
        """Look at the store regularly, until cancelled."""
        while True:
            self._work.clear()
            try:
                await self._look(self._store.unix())
            except StoreError as error:
                self._runner.doubt()  # items to be given up may have been taken, and not ended
                self._store.log_outage(self._log, error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._work.wait()

    async def _renew(self) -> None:
        """Renew the lease, if it is time. It goes by the store's clock, since those of servers
        differ; and the pause between two renewals by one that nobody can set."""
        if clock.now() < self._renew_at:
            return
        store = self._store
        if not self.leased.is_set() and store.is_alone:  # who had the file before has ended
            await store.ask(store.items.free_all)
            opened = self._opened_at  # earlier uploads were cut off, and count for nothing
            for id in await store.ask(store.files.expired, opened, opened):
                await store.delete_file(id)
        now = await store.ask(store.now)
        await store.ask(store.items.keep_alive, now, now + LEASE)
        self._renew_at = clock.now() + RENEWED * SECOND
        self.leased.set()
        self._metrics.waiting = await store.ask(store.items.count_waiting)

    async def _look(self, now: int) -> None:
        store = self._store
        await self._renew()
        await store.ask(store.jobs.expire, now)
        for job in await store.ask(store.jobs.having, CANCELLING, FINALIZING):
            while await store.ask(store.endings.end_some, job):
                await self._renew()  # ending many items may outlast the lease
        if ids := {item.job for item in self._runner.running.values()}:
            self._runner.cancel(ids - await store.ask(store.jobs.running, ids))
        if crashed := await store.ask(store.items.crashed):
            why = f"the server ended {MOST_ATTEMPTS} times while it answered this"
            results = [failed(item, Problem(500, why, code="crashed")) for item in crashed]
            await store.ask(store.items.exchange, results, [], 0)
            self._log.error("items given up", items=len(results), job=crashed[0].job, why=why)
        if clock.now() >= self._clean_at:
            await self._clean(now)
            self._clean_at = clock.now() + CLEANED * SECOND

    async def _clean(self, now: int) -> None:
        """Delete expired files and old jobs, piece by piece."""
        store = self._store
        for id in await store.ask(store.files.expired, now, now - UPLOAD):
            await store.delete_file(id)
            await self._renew()
        old = partial(store.jobs.old, now - self._keep, now, **self._told)
        while ids := await store.ask(old):
            for id in ids:
                while await store.ask(store.jobs.drop_items, id):
                    await self._renew()
            await store.ask(store.jobs.forget, ids)
