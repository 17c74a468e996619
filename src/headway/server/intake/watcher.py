"""What metrics and traces are told of calls and of the engine."""

from collections.abc import Sequence
from typing import Protocol

from headway.core.ledger import RequestRow, StepRow
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.protocol.problem import Problem


class Watcher(Protocol):
    """Told on the event loop's thread, while it happens."""

    def ready(self) -> None:
        """An engine is ready: the first one, or the next one after a fault."""
        ...

    def lost(self) -> None:
        """The engine has failed, and no other one will come: nor will rows."""
        ...

    def entered(self, call: Call) -> None:
        """It is in its lane."""
        ...

    def refused(self, call: Call, problem: Problem) -> None:
        """It was tokenized, and found no place."""
        ...

    def refused_early(self, refusal: Refusal) -> None:
        """A request was refused before it was a call."""
        ...

    def left(self, call: Call, open: Sequence[str]) -> None:
        """It is over; these of its requests have not ended by themselves."""
        ...

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        """The ledger's rows of one step, each with its budget as tightened for the request."""
        ...
