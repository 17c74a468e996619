"""Books: the books of all models and functions, as one."""

from collections.abc import Iterator, Sequence
from heapq import merge

from headway.server.answering.call import Call
from headway.server.intake.service import Service
from headway.server.ledger.book import Book
from headway.server.ledger.engine_book import EngineBook
from headway.server.ledger.rows.open_call import OpenCall
from headway.server.ledger.rows.request_rows import Row


class Books:
    """A book for each model and function: an engine has its own device time."""

    def __init__(self, all: Sequence[EngineBook]) -> None:
        self.all = all

    @property
    def unkept(self) -> int:
        """Rows for which there was no room."""
        return sum([each.unkept for each in self.all])

    def sent(self, call: Call, lost: bool = False) -> None:
        """The last byte of its answer was sent, or its client has gone. lost: another call's answer
        was sent."""
        for each in self.all:
            each.sent(call, lost)

    def find(self, tenant: str, id: str) -> Sequence[Row]:
        """The rows of a call that has ended, if it is remembered."""
        return next((rows for each in self.all if (rows := each.find(tenant, id))), ())

    def find_open(self, tenant: str, id: str) -> OpenCall | None:
        """A call of this tenant that has not ended, by its id or its X-Request-Id."""
        return next((call for each in self.all if (call := each.find_open(tenant, id))), None)

    def latest(self, tenant: str) -> Iterator[Sequence[Row]]:
        """The rows of the tenant's calls that are remembered, the latest end first. Without calls
        that were refused."""
        return merge(*[each.latest(tenant) for each in self.all], key=_ended, reverse=True)

    def knows_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a call that is remembered belongs to this workflow."""
        return any(each.knows_workflow(tenant, workflow) for each in self.all)

    def close(self) -> None:
        """The engines are closed: nothing more is measured. Called once, on the loop."""
        for each in self.all:
            each.close()


def model_books(service: Service, *, keeps: bool, most: int) -> list[EngineBook]:
    """A book for each model; a refusal whose model is not known is the first one's. keeps, most: of
    each book."""
    books = [Book(model, service.spend, keeps, most) for model in service.models]
    if books:
        service.unrouted.append(books[0].refused_early)
    return list(books)


def _ended(rows: Sequence[Row]) -> int:
    return max([int(row["arrived"] + row["wall_ns"]) for row in rows])
