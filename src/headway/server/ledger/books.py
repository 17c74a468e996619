"""Books: the books of all models and functions together."""

from collections.abc import Iterator, Sequence
from heapq import merge

from headway.server.answering.call import Call
from headway.server.intake.service import Service
from headway.server.ledger.book import Book
from headway.server.ledger.engine_book import EngineBook
from headway.server.ledger.rows.open_call import OpenCall
from headway.server.ledger.rows.request_rows import Row
from headway.store.ledger.named_call import NamedCall, latest


class Books:
    """A book for each model and function, since each engine has its own device time."""

    def __init__(self, all: Sequence[EngineBook]) -> None:
        self.all = all

    @property
    def unkept(self) -> int:
        """The number of rows dropped because the books were full."""
        return sum([each.unkept for each in self.all])

    def sent(self, call: Call, lost: bool = False) -> None:
        """Record that the last byte of a call's answer was sent, or that its client has gone. lost:
        another call's answer was sent instead."""
        for each in self.all:
            each.sent(call, lost)

    def find(self, tenant: str, id: str) -> Sequence[Row]:
        """The rows of an ended call, if it is remembered. If several calls have this X-Request-Id,
        `latest` chooses."""
        found = self._ended(tenant, id)
        return found[latest(found, id)] if found else ()

    def find_open(self, tenant: str, id: str) -> OpenCall | None:
        """The tenant's open call with this id or X-Request-Id. None if there is none, or if
        `latest` chooses an ended call instead."""
        open = {key: call for each in self.all for key, call in each.find_open(tenant, id).items()}
        if not open:
            return None
        return open.get(latest([*open, *self._ended(tenant, id)], id))

    def _ended(self, tenant: str, id: str) -> dict[NamedCall, Sequence[Row]]:
        return {key: rows for each in self.all for key, rows in each.find(tenant, id).items()}

    def latest(self, tenant: str) -> Iterator[Sequence[Row]]:
        """The rows of the tenant's remembered calls, the latest end first, without refused
        calls."""
        return merge(*[each.latest(tenant) for each in self.all], key=_end, reverse=True)

    def knows_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a remembered call of the tenant belongs to this workflow."""
        return any(each.knows_workflow(tenant, workflow) for each in self.all)

    def close(self) -> None:
        """Close the books after the engines have closed. Called once, on the loop's thread."""
        for each in self.all:
            each.close()


def model_books(service: Service, *, keeps: bool, most: int) -> list[EngineBook]:
    """A book for each model. The first one also gets refusals whose model is unknown. keeps, most:
    as in EngineBook."""
    books = [Book(model, service.spend, keeps, most) for model in service.models]
    if books:
        service.unrouted.append(books[0].refused_early)
    return list(books)


def _end(rows: Sequence[Row]) -> int:
    return max([int(row["arrived"] + row["wall_ns"]) for row in rows])
