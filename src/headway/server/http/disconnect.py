"""Who waits for an answer: whether it is still there, from before its call is in its lane."""

import asyncio
from contextlib import AbstractContextManager

from starlette.types import Receive

from headway.server.answering.call import Call
from headway.server.http.interruptible import Endable
from headway.server.intake.concurrency import Turn
from headway.server.protocol.problem import Problem


def gone() -> Problem:
    """Nobody will read it. A new one each time: raised twice, it would keep who raised it first."""
    return Problem(499, "the client has gone", code="client_gone")


class Client:
    """Made in the task that answers it, when its request has been read. Whoever has made one calls
    `leave` in the end."""

    def __init__(self, receive: Receive, turn: Turn) -> None:
        """turn: its key's, which ends with it."""
        self._turn = turn
        self.call: Call | None = None  # once it is in its lane
        self._preparation = Endable()
        self._watcher: asyncio.Task[None] | None = asyncio.create_task(self._watch(receive))

    def preparing(self) -> AbstractContextManager[None]:
        """Within it the task waits for what its call needs. Raises the Problem that `end` was told,
        for which what it waits for is cancelled."""
        return self._preparation.stretch()

    def end(self, problem: Problem) -> None:
        """Its call, wherever it is. Nothing happens if that has ended."""
        if self.call:
            self.call.end(problem)
        else:
            self._preparation.end(problem)

    def leave(self) -> None:
        """It has its answer, or will have none: nothing of its call is left in the engine."""
        if watcher := self._watcher:
            # Not kept: it keeps how it was cancelled, and so all that it saw, us too.
            self._watcher = None
            watcher.cancel()
        self.end(gone())
        self._turn.end()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end(gone())
