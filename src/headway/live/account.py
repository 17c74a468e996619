"""Account: hears once what a request has cost, even when the request's caller has left."""

import logging
from typing import Protocol

from headway.core.ledger import RequestRow


class Account(Protocol):
    """A listener for a request's cost. A caller that cancels is gone before the engine has ended
    the request, so code that still needs its device time passes in an Account."""

    def begun(self) -> None:
        """The request is being handed to the engine. Exactly one `settled` follows."""
        ...

    def settled(self, row: RequestRow | None) -> None:
        """The request has ended with this row. None: it was not accepted, or the engine is down.

        Called from any thread, before the caller hears of the end. It must not block.
        """
        ...


def settle(account: Account | None, row: RequestRow | None) -> None:
    """Settle a request's account, if it has one. What the account raises is logged, because it
    would end the engine, and with it the requests of all other callers."""
    if account is None:
        return
    try:
        account.settled(row)
    except Exception:  # the edge of the engine's thread
        logging.getLogger("headway.engine").exception("an account could not be settled")
