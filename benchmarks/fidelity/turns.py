"""Two runs on one machine in turns, each on a clock that stops while the other has its turn.

A machine's speed changes within seconds. Runs that take turns of a few dozen steps meet the same
slow and quick moments.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.runs.run import Progress
from headway.runs.testbed import Clock


class HaltingClock:
    """Another clock, without the time for which it was halted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost, self._since = 0, -1  # nanoseconds; -1: it goes

    def now(self) -> int:
        return (self._clock.now() if self._since < 0 else self._since) - self._lost

    def advance_to(self, time: int, /) -> None:
        self._clock.advance_to(time + self._lost)

    def halt(self) -> None:
        self._since = self._clock.now()

    def resume(self) -> None:
        self._lost += self._clock.now() - self._since
        self._since = -1


@dataclass(frozen=True, slots=True)
class Turn:
    going: Iterator[Progress]
    clock: HaltingClock
    span: int  # nanoseconds, after which the turn ends with the step that is running

    def take(self) -> bool:
        """No: there is nothing left to serve."""
        until = self.clock.now() + self.span
        return any(self.clock.now() >= until for _ in self.going)


def in_turns(first: Turn, second: Turn) -> list[tuple[int, int]]:
    """Until the first has nothing left to serve; the second is then broken off.

    Returns, for each pause of the first: when it was on the first's clock, and when it ended on the
    second's.
    """
    pauses = list[tuple[int, int]]()
    second.clock.halt()
    while first.take():
        first.clock.halt()
        second.clock.resume()
        second.take()
        second.clock.halt()
        pauses.append((first.clock.now(), second.clock.now()))
        first.clock.resume()
    return pauses
