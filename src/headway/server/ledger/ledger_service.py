"""LedgerService: the books with their writers, and queries of the stored ledger."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from headway.errors import SettingError
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.intake.limits.spend import SpendControl
from headway.server.ledger.books import Books
from headway.server.ledger.engine_book import EngineBook
from headway.server.ledger.rows.request_rows import Row
from headway.server.ledger.writer import LedgerWriter
from headway.server.observe.logs import Log
from headway.server.protocol.problem import Problem
from headway.server.store_thread import StoreThread
from headway.store.database import Database, StoreError, url_of
from headway.store.ids import NUL
from headway.store.ledger.outcomes import REQUEST, Outcome, Outcomes

T = TypeVar("T")


class LedgerService:
    """The ledger of a server, opened before it listens."""

    def __init__(
        self, config: ServerConfig, spend: SpendControl, books: Sequence[EngineBook], log: Log
    ) -> None:
        """books: all with keeps=True. Raises SettingError if the store cannot be opened."""
        settings, jobs = config.ledger, config.jobs.store
        # If jobs use the same file, they hold its lock. Each thread has its own connection.
        shared = bool(jobs) and url_of(jobs) == url_of(settings.url)
        self.writers: list[LedgerWriter] = []  # of the books, in their order
        for at, _ in enumerate(books):
            database = Database(settings.url, alone=not (shared or at))
            LedgerWriter(settings, database, spend, log, self.writers)
        spend.is_away = lambda: any(each.away for each in self.writers)
        try:
            self.writers[0].open()
        except StoreError as error:
            for each in self.writers:
                each.close()
            raise SettingError(str(error)) from error
        for book in books:
            book.set_epoch(self.writers[0].clock.epoch())
        self.books = Books(books)
        asked = Database(settings.url, alone=False)
        self._outcomes = Outcomes(asked)
        self._thread = StoreThread(asked, "ledger-reader")

    def start(self) -> None:
        """Start the writers."""
        for writer, book in zip(self.writers, self.books.all, strict=True):
            writer.start(book.take)

    async def close(self) -> None:
        """Write what is left, and close. Call it once the engine is closed and no requests come."""
        self.books.close()
        await asyncio.gather(*[asyncio.to_thread(each.close) for each in self.writers])
        await self._thread.close()

    # -- what routes ask

    async def rows_of(self, tenant: str, id: str) -> Sequence[Row]:
        """The stored rows of a call. Raises Problem."""
        if not (call := await self._stored_call(tenant, id)):
            return ()
        return await self._ask(self._outcomes.rows_of, tenant, call)

    async def add_outcome(
        self, tenant: str, kind: str, subject: str, label: str, value: int | None
    ) -> Outcome:
        """Store an outcome of one of the tenant's requests or workflows. Raises Problem."""
        known = await (
            self._call(tenant, subject) if kind == REQUEST else self._workflow(tenant, subject)
        )
        if not known:
            what = f"there is no {kind} {subject[:100]!r} of yours"
            raise Problem(404, what, kind, f"no_such_{kind}")
        at = clock.epoch() + clock.now()
        outcome = Outcome(tenant, kind, known, label, value, at)
        await self._ask(self._outcomes.add, outcome)
        return outcome

    async def _call(self, tenant: str, id: str) -> str:
        if rows := self.books.find(tenant, id):
            return str(rows[0]["call"])
        return await self._stored_call(tenant, id)

    async def _stored_call(self, tenant: str, id: str) -> str:
        return "" if NUL in id else await self._ask(self._outcomes.call_of, tenant, id)

    async def _workflow(self, tenant: str, workflow: str) -> str:
        if NUL in workflow:
            return ""
        if self.books.knows_workflow(tenant, workflow):
            return workflow
        return workflow if await self._ask(self._outcomes.has_workflow, tenant, workflow) else ""

    async def _ask(self, ask: Callable[..., T], *given: object) -> T:
        """Run a query in the reader's thread. Raises Problem if the store cannot be used now. It
        leaves out the cause's text, which may name hosts or paths."""
        try:
            return await self._thread.ask(ask, *given)
        except StoreError as error:
            what = "the ledger cannot be used now"
            raise Problem(503, what, code="store_down", retry=5.0) from error
