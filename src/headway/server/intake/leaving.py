"""Leaving: cancelled requests whose call has already ended, until their ledger rows come."""

from collections.abc import Iterable
from dataclasses import replace

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.server.answering.call import Call

# By the code of a call's problem. When one request of a call ends in such a way, the server cancels
# the call's other requests. The server ended them, not the client.
ENDED_BY_SERVER = {
    "lane_full": Finish.REFUSED,
    "deadline_exceeded": Finish.EXPIRED,
    "unsatisfiable": Finish.UNSATISFIABLE,
}


class Leaving:
    """The requests that the engine was told to cancel, by the call they belong to."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}  # by request id

    def add(self, call: Call, open: Iterable[str]) -> bool:
        """Add a call that has left. open: its requests that have not ended by themselves. Returns
        whether rows of the call are still to come."""
        ids = [id for id in open if id not in call.rows]
        self._calls.update(dict.fromkeys(ids, call))
        return bool(ids)

    def take(self, row: RequestRow) -> Call | None:
        """The call of a leaving request, or None. Gives the call the row, with the finish that
        follows from the call's problem."""
        if call := self._calls.pop(row.id, None):
            code = call.problem.code if call.problem else ""
            call.rows[row.id] = replace(row, finish=ENDED_BY_SERVER.get(code, row.finish))
        return call

    def give_up(self) -> list[Call]:
        """Stop waiting for rows. Returns the calls that still waited for some."""
        calls = list(dict.fromkeys(self._calls.values()))
        self._calls.clear()
        return calls


def begun(call: Call) -> int:
    """Tokens of the call's prompts that the engine began to compute. A prompt counts once for all
    its choices."""
    found = {}
    for id, choice in call.choices.items():
        row, first = call.rows.get(id), choice.leader or choice
        if row.first_scheduled != NEVER if row else choice.answer.tokens:
            found[first.answer.request.id] = len(first.answer.request.prompt)
    return sum(found.values())
