"""Requests that missed a limit of their lane, and by how much (Missed)."""

from typing import NamedTuple

from headway.commands.diagnose.evidence import Evidence
from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish

FAILED = (Finish.UNSATISFIABLE, Finish.ERROR)
READ = 1_000_000_000  # nanoseconds: without an e2e limit, a client that took less is not slow
LOST = (Finish.REFUSED, *FAILED)  # requests without times that a cause could explain


class Missed(NamedTuple):
    """One request, the first limit that it missed, and by how many nanoseconds."""

    row: RequestRow
    limit: str  # queue, ttft, tpot, e2e; client: the answer was in time, the client's reading not
    excess: int  # nanoseconds beyond the limit; for tpot the sum over all gaps

    @property
    def waited(self) -> bool:
        """Whether the limit ends at or before the first token."""
        return self.limit in ("queue", "ttft")

    @property
    def span(self) -> tuple[int, int]:
        """The time that counts against the limit: begin and end."""
        row = self.row
        first = row.finished if row.first_token == NEVER else row.first_token
        if self.limit == "queue":
            started = row.finished if row.first_scheduled == NEVER else row.first_scheduled
            return row.arrived, started
        if self.limit == "ttft":
            return row.arrived, first
        if self.limit == "tpot":
            return first, row.last_token
        return row.arrived, row.finished


def missed_requests(evidence: Evidence) -> tuple[Missed, ...]:
    """The missed requests in order of arrival, without refused and failed ones."""
    found = [_missed(row, evidence.client_waits.get(row.id, 0)) for row in evidence.requests]
    return tuple(sorted([each for each in found if each], key=lambda each: each.row.arrived))


def _missed(row: RequestRow, client_wait: int) -> Missed | None:
    if row.finish in LOST:
        return None
    budget, never_began = row.budget, row.first_token == NEVER
    waited = row.finished - row.arrived
    queue = waited if row.first_scheduled == NEVER else row.queue
    ttft = waited if never_began and row.finish is not Finish.COMPUTED else row.ttft
    if queue > budget.queue:
        return Missed(row, "queue", queue - budget.queue)
    if ttft > budget.ttft and ttft != NEVER:
        return Missed(row, "ttft", ttft - budget.ttft)
    if row.finish is Finish.EXPIRED:  # by a deadline of its own
        return Missed(row, "ttft" if never_began else "e2e", waited // 2)
    if row.tpot > budget.tpot:
        return Missed(row, "tpot", (row.tpot - budget.tpot) * (row.generated - 1))
    if row.e2e > budget.e2e:
        return Missed(row, "e2e", row.e2e - budget.e2e)
    allowed = max(row.e2e, READ) if budget.e2e == NEVER else budget.e2e - row.e2e
    if client_wait > allowed:  # without a limit: the client more than doubled the time
        return Missed(row, "client", client_wait - allowed)
    return None
