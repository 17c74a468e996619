"""Leaving: requests whose call has ended before them, until their rows come."""

from collections.abc import Iterable
from dataclasses import replace

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.server.answering.call import Call

# By the code of a call's problem. The engine cancels the rest of a call when one of its requests
# ends so. The server has ended these requests, not their client.
ENDED_BY_SERVER = {
    "lane_full": Finish.REFUSED,
    "deadline_exceeded": Finish.EXPIRED,
    "unsatisfiable": Finish.UNSATISFIABLE,
}


class Leaving:
    """The engine has been told to cancel them."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}  # by each request's id

    def add(self, call: Call, open: Iterable[str]) -> bool:
        """A call has left. open: its requests that have not ended by themselves. Returns whether
        rows of it will still come."""
        ids = [id for id in open if id not in call.rows]
        self._calls.update(dict.fromkeys(ids, call))
        return bool(ids)

    def take(self, row: RequestRow) -> Call | None:
        """The call of a request that was leaving. It is given the row, with the finish that the
        call had."""
        if call := self._calls.pop(row.id, None):
            code = call.problem.code if call.problem else ""
            call.rows[row.id] = replace(row, finish=ENDED_BY_SERVER.get(code, row.finish))
        return call

    def give_up(self) -> list[Call]:
        """No more rows will come. Returns the calls that wait for some."""
        calls = list(dict.fromkeys(self._calls.values()))
        self._calls.clear()
        return calls


def begun(call: Call) -> int:
    """Tokens of the prompts that the engine has begun to compute. Each counts once for all of its
    choices."""
    found = {}
    for id, choice in call.choices.items():
        row, first = call.rows.get(id), choice.leader or choice
        if row.first_scheduled != NEVER if row else choice.answer.tokens:
            found[first.answer.request.id] = len(first.answer.request.prompt)
    return sum(found.values())
