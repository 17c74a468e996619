"""Accounts: what a route's attempts cost in one engine, and when they end."""

import asyncio
from collections.abc import Sequence

from headway.core.ledger import RequestRow, StepRow
from headway.routing.bill import Bill
from headway.routing.price import Price
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.protocol.problem import Problem

DOWN = frozenset({"engine_down", "draining"})  # a call that ends with these gets no more rows


class Account:
    """The account of one attempt: a call, perhaps with several requests to the engine."""

    def __init__(self, call: Call, bill: Bill, price: Price) -> None:
        self.call = call
        self.over = asyncio.Event()  # the call has ended
        self._bill, self._price = bill, price
        self.open = {each.id for each in call.requests}  # requests whose row has not come
        self._nanoseconds = self._prompt = self._generated = 0
        bill.later()

    def add(self, row: RequestRow) -> None:
        """Add the ledger row of one of the call's requests."""
        self.open.discard(row.id)
        self._nanoseconds += row.nanoseconds
        self._prompt += row.prompt
        self._generated += row.generated
        if not self.open:
            self.close()

    def close(self) -> None:
        """Close the bill: no more rows come."""
        if not self._bill.is_closed:
            cost = self._price.cost(self._nanoseconds, self._prompt, self._generated)
            self._bill.close(self._nanoseconds, cost, measured=not self.open)


class Accounts:
    """The Watcher of one model that keeps its accounts. Runs on the event loop's thread."""

    def __init__(self) -> None:
        self._calls: dict[str, Account] = {}  # by the call's id, until it has ended
        self._open: dict[str, Account] = {}  # by the request's id, until its row has come

    def open(self, call: Call, bill: Bill, price: Price) -> Account:
        """Open the account of a call that has just entered its lane."""
        account = self._calls[call.id] = Account(call, bill, price)
        self._open.update(dict.fromkeys(account.open, account))
        return account

    def ready(self) -> None:
        """A new engine is ready, so the previous engine sends no more rows."""
        self.lost()

    def lost(self) -> None:
        """Close the open accounts: none of them gets more rows."""
        for account in self._open.values():
            account.close()
        self._open.clear()

    def entered(self, call: Call) -> None:
        """Nothing to do: `open` opens the account."""

    def refused(self, call: Call, problem: Problem) -> None:
        """Nothing to do: the call never reached the engine."""

    def refused_early(self, refusal: Refusal) -> None:
        """Nothing to do: the request never reached the engine."""

    def left(self, call: Call, open: Sequence[str]) -> None:
        """A call has ended. Rows of its cancelled requests follow if the engine is still up."""
        if account := self._calls.pop(call.id, None):
            account.over.set()
            if call.problem and call.problem.code in DOWN:
                for id in account.open:
                    self._open.pop(id, None)
                account.close()

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        """Add the ledger's rows to the open accounts."""
        for row in requests:
            if account := self._open.pop(row.id, None):
                account.add(row)
