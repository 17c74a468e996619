"""Bill: the cost of one attempt, which may be known only after its answer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from headway.core.ledger import RequestRow
from headway.routing.price import Price


class Bill:
    """The cost of one attempt. A bill is closed exactly once.

    A target closes it before `ask` ends. If it has called `later`, it may close it at any time
    afterwards: an engine ends a cancelled request only with its next step. If the target never
    closes the bill, the attempt costs 0 and counts as estimated.
    """

    def __init__(self, closed: Callable[[], object]) -> None:
        """closed: called in the event loop when the bill is closed."""
        self._closed, self._is_awaited = closed, False
        self.nanoseconds = 0  # of the device
        self.cost = 0  # billionths of the unit of price
        self.is_measured = False  # False: estimated or unknown
        self.is_closed = False

    def later(self) -> None:
        """Announce that `close` will be called, perhaps after `ask` has ended."""
        self._is_awaited = True

    def close(self, nanoseconds: int, cost: int, measured: bool = True) -> None:
        """Set the cost of the attempt. Call it in the event loop."""
        assert not self.is_closed, "a bill is closed once"
        self.nanoseconds, self.cost, self.is_measured = nanoseconds, cost, measured
        self.is_closed = True
        self._closed()

    def over(self) -> None:
        """Note that `ask` has ended."""
        if not self.is_closed and not self._is_awaited:
            self.close(0, 0, measured=False)


class EngineAccount:
    """An account (headway.live.account.Account) that closes a bill from the ledger's row."""

    def __init__(self, bill: Bill, price: Price) -> None:
        self._bill, self._price = bill, price
        self._loop = asyncio.get_running_loop()

    def begun(self) -> None:
        self._bill.later()

    def settled(self, row: RequestRow | None) -> None:
        device = row.nanoseconds if row else 0
        tokens = (row.prompt, row.generated) if row else (0, 0)
        cost = self._price.cost(device, *tokens)
        with suppress(RuntimeError):  # the loop is closed: no row is awaited
            self._loop.call_soon_threadsafe(self._bill.close, device, cost)
