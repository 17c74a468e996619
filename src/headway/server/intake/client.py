"""Client: who waits for a call's answer, as intake sees it."""

from contextlib import AbstractContextManager
from typing import Protocol

from headway.server.answering.call import Call
from headway.server.protocol.problem import Problem


class Client(Protocol):
    """The receiver of one call's answer, such as http.disconnect.Client."""

    call: Call | None  # set once the call is in its lane

    def preparing(self) -> AbstractContextManager[None]:
        """A context for the call's preparation. Raises the Problem that was given to `end`."""
        ...

    def end(self, problem: Problem) -> None:
        """End the call or its preparation with this problem."""
        ...
