"""Waiting: callers wait for the ends of jobs, and one task looks at the store for all of them."""

import asyncio
from collections import Counter
from contextlib import suppress

from headway.server.jobs.store import JobStore
from headway.store.database import StoreError

LOOK = 0.25  # seconds between two looks
AT_ONCE = 500  # jobs that one look asks for


class Waiting:
    """However many callers wait, the store is asked as often as for one."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._ends: dict[str, asyncio.Event] = {}  # by job: set once it has ended
        self._callers = Counter[str]()
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, job: str, seconds: float) -> None:
        """Wait until the job has ended, but no longer than this."""
        end = self._ends.setdefault(job, asyncio.Event())
        self._callers[job] += 1
        if self._looking is None or self._looking.done():  # done: an error has ended it
            self._looking = asyncio.create_task(self._look())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await end.wait()
        finally:
            self._callers[job] -= 1
            if not self._callers[job]:
                del self._callers[job], self._ends[job]

    async def _look(self) -> None:
        """Look at the store until nobody waits."""
        while jobs := list(self._ends):
            for start in range(0, len(jobs), AT_ONCE):
                with suppress(StoreError):  # the caller hears of it when it reads the job
                    ask = self._store.ask
                    for id in await ask(self._store.jobs.ended, jobs[start : start + AT_ONCE]):
                        if end := self._ends.get(id):
                            end.set()
            await asyncio.sleep(LOOK)
        self._looking = None
