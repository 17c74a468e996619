"""Validator: turns the input files of batches into items, one batch at a time."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from headway.server.jobs.store import JobStore
from headway.server.jobs.validation import InputReader
from headway.server.observe.logs import Log
from headway.store.database import StoreError
from headway.store.jobs import Job

LOOK = 1.0  # seconds between two looks for batches, if no new batch wakes the validator


class Validator:
    """Validates the batches of a store.

    reader: makes the reader for an endpoint. opened: called when a batch's items may be taken.
    """

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
        """Look at once, because there is a new batch."""
        self._work.set()

    async def run(self) -> None:
        """Validate batches until cancelled. An interrupted validation starts again."""
        while True:
            self._work.clear()
            store = self._store
            try:
                while job := await store.ask(store.jobs.claim, store.worker, store.endpoints):
                    await self._validate(job)
            except StoreError as error:
                store.log_outage(self._log, error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._work.wait()

    async def _validate(self, job: Job) -> None:
        store, reader = self._store, self._reader(job.endpoint)
        if not await store.ask(store.items.clear, job.id):
            return
        file = await store.ask(store.files.get, job.tenant, job.input_file)
        if file is None:
            return await store.ask(store.endings.fail, job, [_deleted(job)])
        pieces, size = store.files.content(file), 0
        while not reader.has_failed:
            count, is_mine = await store.ask(self._read_piece, reader, pieces, job)
            if not is_mine:
                return
            if not count:
                break
            size += count
        if not reader.has_failed and size < file.bytes:  # deleted meanwhile: a line may be cut
            reader.errors = [_deleted(job)]
        if reader.errors:
            await store.ask(store.endings.fail, job, reader.errors)
            self._log.info("batch refused", job=job.id, errors=len(reader.errors))
            return
        opened = job.id, reader.count, reader.model, store.unix()
        if not await store.ask(store.items.open, *opened):
            return
        self._log.info("batch begun", job=job.id, requests=reader.count)
        self._opened()

    def _read_piece(
        self, reader: InputReader, pieces: Iterator[bytes], job: Job
    ) -> tuple[int, bool]:
        """Read one piece, in the store's thread; other calls may run between two pieces. Returns
        the piece's bytes, 0 at the end, and whether this worker still holds the batch."""
        piece = next(pieces, b"")
        items = reader.read(piece)
        if not items or reader.errors:
            return len(piece), True
        return len(piece), self._store.items.add(job.id, job.tenant, items)


def _deleted(job: Job) -> dict[str, object]:
    why = f"the input file {job.input_file} was deleted"
    return {"code": "no_such_file", "message": why, "param": "input_file_id", "line": None}
