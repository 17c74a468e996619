"""Recent: the rows of the latest calls, found by their id or X-Request-Id."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from headway.server.ledger.rows.request_rows import Row

MOST_ROWS = 4  # average rows of a call, which bounds the rows in all


class Recent:
    """The latest calls; beyond the bound, the oldest are forgotten first. A call is found by its id
    and by its X-Request-Id, which several calls may share."""

    def __init__(self, most: int) -> None:
        """most: calls to remember."""
        self._most = most
        self._calls: OrderedDict[tuple[str, str], Sequence[Row]] = OrderedDict()  # tenant, id
        # By tenant and X-Request-Id: the ids of these calls, in the order of their ends.
        self._names: dict[tuple[str, str], dict[str, None]] = {}
        self._rows = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Remember the rows of a call that has ended."""
        first = rows[0]
        self._calls[first["tenant"], first["call"]] = rows
        self._names.setdefault((first["tenant"], first["request_id"]), {})[first["call"]] = None
        self._rows += len(rows)
        most = self._most * MOST_ROWS
        while len(self._calls) > self._most or (self._rows > most and len(self._calls) > 1):
            self._forget()

    def find(self, tenant: str, id: str) -> Iterator[Sequence[Row]]:
        """The rows of each of the tenant's calls with this id or X-Request-Id."""
        for call in {id: None} | self._names.get((tenant, id), {}):
            if rows := self._calls.get((tenant, call)):
                yield rows

    def latest(self, tenant: str) -> Iterator[Sequence[Row]]:
        """The rows of the tenant's calls, the latest first."""
        return (rows for (owner, _), rows in reversed(self._calls.items()) if owner == tenant)

    def has_workflow(self, tenant: str, workflow: str) -> bool:
        """Whether a call of the tenant named this workflow."""
        return any(
            owner == tenant and rows[0]["workflow"] == workflow
            for (owner, _), rows in self._calls.items()
        )

    def _forget(self) -> None:
        (tenant, call), rows = self._calls.popitem(last=False)
        self._rows -= len(rows)
        name = tenant, rows[0]["request_id"]
        self._names[name].pop(call, None)
        if not self._names[name]:
            del self._names[name]
