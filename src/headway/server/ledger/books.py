"""Books: the books of all models, as one."""

from collections.abc import Sequence

from headway.server.answering.call import Call
from headway.server.intake.service import Service
from headway.server.ledger.book import Book
from headway.server.ledger.open_call import OpenCall
from headway.server.ledger.request_rows import Row


class Books:
    """A book for each model: an engine has its own device time.

    keeps, most: of each book. A refusal whose model is not known is the first one's.
    """

    def __init__(self, service: Service, *, keeps: bool, most: int) -> None:
        self.all = [Book(model, service.spend, keeps, most) for model in service.models]
        if self.all:
            service.unrouted.append(self.all[0].refused_early)

    @property
    def unkept(self) -> int:
        """Rows for which there was no room."""
        return sum([each.unkept for each in self.all])

    def sent(self, call: Call) -> None:
        """The last byte of its answer was sent, or its client has gone."""
        for each in self.all:
            each.sent(call)

    def find(self, tenant: str, id: str) -> Sequence[Row]:
        """The rows of a call that has ended, if it is remembered."""
        return next((rows for each in self.all if (rows := each.find(tenant, id))), ())

    def find_open(self, tenant: str, id: str) -> OpenCall | None:
        """A call of this tenant that has not ended, by its id or its X-Request-Id."""
        return next((call for each in self.all if (call := each.find_open(tenant, id))), None)

    def knows_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a call that is remembered belongs to this workflow."""
        return any(each.knows_workflow(tenant, workflow) for each in self.all)

    def close(self) -> None:
        """The engines are closed: nothing more is measured. Called once, on the loop."""
        for each in self.all:
            each.close()
