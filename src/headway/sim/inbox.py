"""Commands whose times are known beforehand."""

from collections import deque
from collections.abc import Iterable

from headway.core.batch import Add, Close, Command
from headway.core.request import NEVER, Request
from headway.errors import StuckError
from headway.sim.clock import WaitingClock


def arrivals(requests: Iterable[Request]) -> list[tuple[int, Command]]:
    return [(request.arrived, Add(request)) for request in requests]


class TraceInbox:
    """Hands out each command when its time has come, and closes after the last."""

    def __init__(self, timed: Iterable[tuple[int, Command]], clock: WaitingClock) -> None:
        self.clock = clock
        self.left = deque(sorted(timed, key=lambda pair: pair[0]))
        self.left.append((self.left[-1][0] if self.left else 0, Close()))

    def poll(self) -> list[Command]:
        due = []
        while self.left and self.left[0][0] <= self.clock.now():
            due.append(self.left.popleft()[1])
        return due

    def wait(self, until: int) -> None:
        if (time := min(until, self.left[0][0] if self.left else NEVER)) == NEVER:
            raise StuckError("nothing will ever happen: no arrival and no deadline")
        self.clock.advance_to(time)
