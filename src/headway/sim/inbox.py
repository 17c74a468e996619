"""An inbox of commands whose times are known in advance (TraceInbox)."""

from collections.abc import Iterable, Iterator

from headway.core.commands import Add, Close, Command
from headway.core.request import NEVER, Request
from headway.errors import StuckError
from headway.sim.clock import WaitingClock


def arrivals(requests: Iterable[Request]) -> Iterator[tuple[int, Command]]:
    """An Add command for each request, at its arrival time."""
    return ((request.arrived, Add(request)) for request in requests)


class TraceInbox:
    """Hand out each command when it is due, and Close after the last one.

    timed: commands in order of time. They are read lazily, so a long trace is never in memory as
    a whole.
    """

    def __init__(self, timed: Iterable[tuple[int, Command]], clock: WaitingClock) -> None:
        self.clock = clock
        self._timed = iter(timed)
        self._next: tuple[int, Command] = 0, Close()
        self._closed = False  # whether Close is next or was handed out
        self._at = 0
        self._advance()

    @property
    def next_at(self) -> int:
        """When the next command is due; NEVER if there is none."""
        return self._at

    def _advance(self) -> None:
        before = self._next[0]
        if (following := next(self._timed, None)) is not None:
            assert following[0] >= before, "commands must come in order of time"
            self._next, self._at = following, following[0]
        elif not self._closed:
            self._closed = True
            self._next, self._at = (before, Close()), before
        else:
            self._at = NEVER

    def poll(self) -> list[Command]:
        due = []
        while self._at <= self.clock.now():
            due.append(self._next[1])
            self._advance()
        return due

    def wait(self, until: int, least: int = 1) -> None:
        if (time := min(until, self.next_at)) == NEVER:
            raise StuckError("nothing will ever happen: no arrival and no deadline")
        self.clock.advance_to(time)
