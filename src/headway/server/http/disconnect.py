"""Notices that a client disconnects while its call is prepared or answered, and ends the call."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from starlette.types import Receive

from headway.core.request import NEVER
from headway.server.answering.call import Call
from headway.server.http.interruptible import Interruptible
from headway.server.intake.limits.concurrency import Permit
from headway.server.protocol.problem import Problem


def client_gone() -> Problem:
    """The answer that nobody reads. Always a new one: an exception keeps the frames it was raised
    in, and with them what their locals hold."""
    return Problem(499, "the client has gone", code="client_gone")


async def until_disconnect(receive: Receive) -> None:
    """Wait until the client is gone; whatever it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


def nobody(lane: str, waited: int) -> None:
    """Takes the end of a stream that nobody counts."""


class Client:
    """Who waits for the answer of one call.

    Made by the task that answers, when the whole request has been read. That task must close it.
    """

    def __init__(
        self, receive: Receive, permit: Permit, sent: Callable[[str, int], object] = nobody
    ) -> None:
        """permit: the request's place among those of its key; it ends with the client. sent: told
        of a stream's end, its lane and how long it waited for the client."""
        self._permit = permit
        self.call: Call | None = None  # once it is in its lane
        self.waited = NEVER  # nanoseconds that a stream waited for it to read; NEVER: no stream
        self._sent = sent
        self._preparation = Interruptible()
        self._watcher: asyncio.Task[None] | None = asyncio.create_task(self._watch(receive))

    def preparing(self) -> AbstractContextManager[None]:
        """Around the task's waiting for what the call needs. Raises the Problem that `end` was
        given in the meantime."""
        return self._preparation

    def end(self, problem: Problem) -> None:
        """End the call with this problem, in its lane or before. Does nothing if it has ended."""
        if self.call:
            self.call.end(problem)
        else:
            self._preparation.interrupt(problem)

    def close(self) -> None:
        """The client has its answer or will get none: take what is left out of the engine."""
        if watcher := self._watcher:
            # Dropped, because a cancelled task keeps its frames alive, and so this client.
            self._watcher = None
            watcher.cancel()
            if self.call and self.waited != NEVER:
                self._sent(self.call.routed.lane, self.waited)
        self.end(client_gone())
        self._permit.release()

    async def _watch(self, receive: Receive) -> None:
        await until_disconnect(receive)
        self.end(client_gone())
