"""Account: hears once what a request has cost, even when the request's caller has left."""

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
