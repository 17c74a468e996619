"""Client: ends a call when its client disconnects while the call is prepared or answered."""

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
    """The answer that no client reads. It is a new object each time: an exception keeps the frames
    it was raised in, and so their locals."""
    return Problem(499, "the client has gone", code="client_gone")


async def until_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected. Anything it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


def nobody(call: Call, waited: int) -> None:
    """Ignores the end of a stream."""


class Client:
    """The client that waits for one call's answer.

    The answering task creates it once the whole request has been read, and must close it.
    """

    def __init__(
        self, receive: Receive, permit: Permit, sent: Callable[[Call, int], object] = nobody
    ) -> None:
        """permit: the request's concurrency permit, released by close(). sent: called at a stream's
        end with its call and the nanoseconds it waited for the client."""
        self._permit = permit
        self.call: Call | None = None  # set once the call is in its lane
        self.gone = False  # whether it has disconnected
        self.waited = NEVER  # nanoseconds a stream waited for the client to read; NEVER: no stream
        self._sent = sent
        self._preparation = Interruptible()
        self._watcher: asyncio.Task[None] | None = asyncio.create_task(self._watch(receive))

    def preparing(self) -> AbstractContextManager[None]:
        """A context around the task's preparation of the call. Raises the Problem that `end` gets
        within it."""
        return self._preparation

    def end(self, problem: Problem) -> None:
        """End the call with this problem, in its lane or in preparation. Does nothing if the call
        has ended."""
        if self.call:
            self.call.end(problem)
        else:
            self._preparation.interrupt(problem)

    def close(self) -> None:
        """Release everything once the client has its answer or will get none: end the call if it
        still runs, and release the permit."""
        if watcher := self._watcher:
            # Drop the reference: a cancelled task keeps its frames alive, and so this client.
            self._watcher = None
            watcher.cancel()
            if self.call and self.waited != NEVER:
                self._sent(self.call, self.waited)
        self.end(client_gone())
        self._permit.release()

    async def _watch(self, receive: Receive) -> None:
        await until_disconnect(receive)
        self.gone = True
        self.end(client_gone())
