"""Bill: what one attempt has cost, which may be known only after its answer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from headway.core.ledger import RequestRow
from headway.routing.price import Price


class Bill:
    """Closed once. A target closes it before `ask` ends or, if it says so by `later`, at any time
    after: an engine that is told of a cancel ends the request with its next step.

    An attempt whose target closes no bill has cost nothing, as far as is known: it counts as
    estimated.
    """

    def __init__(self, closed: Callable[[], object]) -> None:
        """closed: called when it is closed, in the event loop."""
        self._closed, self._is_awaited = closed, False
        self.nanoseconds = 0  # of the device
        self.cost = 0  # billionths of the unit of price
        self.is_measured = False  # else: estimated, or nothing is known
        self.is_closed = False

    def later(self) -> None:
        """`close` will be called, perhaps after `ask` has ended."""
        self._is_awaited = True

    def close(self, nanoseconds: int, cost: int, measured: bool = True) -> None:
        """This is what the attempt has cost. In the event loop."""
        assert not self.is_closed, "a bill is closed once"
        self.nanoseconds, self.cost, self.is_measured = nanoseconds, cost, measured
        self.is_closed = True
        self._closed()

    def over(self) -> None:
        """`ask` has ended."""
        if not self.is_closed and not self._is_awaited:
            self.close(0, 0, measured=False)


class EngineAccount:
    """headway.live.account.Account that closes a bill with the ledger's row."""

    def __init__(self, bill: Bill, price: Price) -> None:
        self._bill, self._price = bill, price
        self._loop = asyncio.get_running_loop()

    def begun(self) -> None:
        self._bill.later()

    def settled(self, row: RequestRow | None) -> None:
        device = row.nanoseconds if row else 0
        tokens = (row.prompt, row.generated) if row else (0, 0)
        cost = self._price.cost(device, *tokens)
        with suppress(RuntimeError):  # the loop is closed: nobody waits for the decision's row
            self._loop.call_soon_threadsafe(self._bill.close, device, cost)
