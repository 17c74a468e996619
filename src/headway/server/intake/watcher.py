"""Watcher: what metrics and traces are told about calls and the engine."""

from collections.abc import Sequence
from typing import Protocol

from headway.core.ledger import RequestRow, StepRow
from headway.server.answering.call import Call
from headway.server.answering.refusal import Refusal
from headway.server.protocol.problem import Problem


class Watcher(Protocol):
    """Told of each event on the event loop's thread, as it happens."""

    def ready(self) -> None:
        """An engine is ready: the first one, or the next after a fault."""
        ...

    def lost(self) -> None:
        """The engine has failed for good. No more rows come."""
        ...

    def entered(self, call: Call) -> None:
        """The call is in its lane."""
        ...

    def refused(self, call: Call, problem: Problem) -> None:
        """The call was tokenized, and then refused."""
        ...

    def refused_early(self, refusal: Refusal) -> None:
        """A request was refused before it became a call."""
        ...

    def left(self, call: Call, open: Sequence[str]) -> None:
        """The call is over. open: its requests that have not ended by themselves."""
        ...

    def rows(self, steps: list[StepRow], requests: list[RequestRow]) -> None:
        """The ledger's rows of one step, each with its request's own, perhaps tightened, budget."""
        ...
