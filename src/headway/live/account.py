"""Account: who is told what a request has cost, once, even when its caller has left."""

from typing import Protocol

from headway.core.ledger import RequestRow


class Account(Protocol):
    """A caller that cancels is gone before the engine has ended the request. Whoever wants to know
    its device time all the same hands in one of these."""

    def begun(self) -> None:
        """The engine has the request from now on, or is just given it: `settled` follows once."""
        ...

    def settled(self, row: RequestRow | None) -> None:
        """The request has ended with this row. None: it was not taken in, or the engine is down.

        Called in any thread, before the caller hears of the end. It must not block.
        """
        ...
