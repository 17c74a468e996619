"""Who waits for a call's answer, as intake sees them."""

from contextlib import AbstractContextManager
from typing import Protocol

from headway.server.answering.call import Call
from headway.server.protocol.problem import Problem


class Client(Protocol):
    """http.disconnect.Client is one."""

    call: Call | None  # once it is in its lane

    def preparing(self) -> AbstractContextManager[None]:
        """While its call is prepared. Raises the Problem that `end` was told."""
        ...

    def end(self, problem: Problem) -> None:
        """End its call, or its preparation."""
        ...
