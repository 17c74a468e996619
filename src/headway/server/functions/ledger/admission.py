"""Admission: a function's request that is let in, and its entry for the ledger."""

from collections.abc import Callable, Mapping

from headway.server.config.tenant import Tenant
from headway.server.functions.ledger.function_book import FunctionBook
from headway.server.functions.ledger.item_rows import FunctionCall
from headway.server.intake.keys import KeyRing
from headway.server.intake.limits.concurrency import permit
from headway.server.protocol.labels import labels_of
from headway.server.protocol.problem import Problem


class Admission:
    """A request that is let in; end it once. A refused request also makes a row of the ledger."""

    def __init__(
        self,
        keys: KeyRing,
        tenant: Tenant,
        headers: Mapping[str, str],
        book: FunctionBook | None,
        check_open: Callable[[], object],
    ) -> None:
        """book: None if no ledger is kept. check_open: raises Problem while the function takes no
        requests. Raises Problem."""
        self.tenant, self._book = tenant, book
        self.call: FunctionCall | None = book.begin(headers, tenant) if book else None
        try:
            if self.call:
                self.call.labels = labels_of(headers)
            check_open()
            self._permit = permit(keys, tenant)
        except Problem:
            self._leave()
            raise

    def end(self) -> None:
        """Note that the answer was made or given up."""
        self._permit.release()
        self._leave()

    def _leave(self) -> None:
        if self.call and self._book:
            self._book.left(self.call)
