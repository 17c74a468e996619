"""Validator: makes items of the input files of batches, one batch at a time."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from headway.server import clock
from headway.server.jobs.store import JobStore
from headway.server.jobs.validation import InputReader
from headway.server.observe.logs import Log
from headway.store.database import StoreError
from headway.store.jobs import VALIDATING, Job

LOOK = 1.0  # seconds between two looks for batches that nobody told of
CHECKED = 16  # pieces of a file between two looks at whether the batch was cancelled


class Validator:
    """reader: for an endpoint. opened: called when the items of a batch may be taken."""

    def __init__(
        self,
        store: JobStore,
        reader: Callable[[str], InputReader],
        opened: Callable[[], None],
        log: Log,
    ) -> None:
        self._store, self._reader, self._opened, self._log = store, reader, opened, log
        self._work = asyncio.Event()

    def wake(self) -> None:
        """There is a new batch."""
        self._work.set()

    async def run(self) -> None:
        """Until it is cancelled. A batch whose validation was cut off begins again."""
        while True:
            self._work.clear()
            try:
                while job := await self._store.ask(self._store.jobs.claim, self._store.worker):
                    await self._validate(job)
            except StoreError as error:
                self._log.error("batches wait for their store", cause=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._work.wait()

    async def _validate(self, job: Job) -> None:
        store, reader = self._store, self._reader(job.endpoint)
        await store.ask(store.items.clear, job.id)
        file = await store.ask(store.files.get, job.tenant, job.input_file)
        if file is None:
            why = f"the input file {job.input_file} was deleted"
            error = {"code": "no_such_file", "message": why, "param": "input_file_id", "line": None}
            return await store.ask(store.endings.fail, job, [error])
        pieces, number = store.files.content(file), 0
        while not reader.has_failed:
            if number % CHECKED == 0 and not await self._is_wanted(job):
                return
            number += 1
            if not await store.ask(self._read_piece, reader, pieces, job):
                break
        if reader.errors:
            await store.ask(store.endings.fail, job, reader.errors)
            self._log.info("batch refused", job=job.id, errors=len(reader.errors))
            return
        await store.ask(store.items.open, job.id, reader.count, reader.model, clock.unix())
        self._log.info("batch begun", job=job.id, requests=reader.count)
        self._opened()

    def _read_piece(self, reader: InputReader, pieces: Iterator[bytes], job: Job) -> bool:
        """In the store's thread, a piece at a time: between two of them others have their turn.
        False: it was the end."""
        piece = next(pieces, b"")
        items = reader.read(piece)
        if items and not reader.errors:
            self._store.items.add(job.id, job.tenant, items)
        return bool(piece)

    async def _is_wanted(self, job: Job) -> bool:
        now = await self._store.ask(self._store.jobs.get, job.tenant, job.id)
        return now is not None and now.status == VALIDATING
