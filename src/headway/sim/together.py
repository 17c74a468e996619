"""Several engines in one virtual time (Together): each has its own clock, and none runs ahead.

An engine's step moves its own clock to the step's end. Nobody else may hear of what came of it
before it is that late for them too. So the earliest event of all is always next:

    stage 1 clock   |====== step ======|  <- its events are told, then its next step is decided
    stage 2 clock   |=== step ===|           told first, because it ends first
    arrivals           x      x              in between

This is conservative simulation (Chandy and Misra, IEEE TSE 1979) in one thread. Ties have an order:
what is told goes before what arrives, and that before steps; each in the order of the engines.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from headway.core.batch import Event
from headway.core.commands import Command
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER
from headway.core.scheduler import Scheduler
from headway.engine import Engine
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor

TELL, ARRIVE, STEP = 0, 1, 2  # at the same time, in this order


class SharedInbox:
    """Commands that others put while the simulation runs. A wait moves no clock: it is noted."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._timed = list[tuple[int, int, Command]]()
        self._numbers = count()
        self._wake_at = 0  # when the engine is to be asked again, if no command comes before

    @property
    def next_at(self) -> int:
        """When its engine has something to do; NEVER: not before another command comes."""
        return min(self._wake_at, self._timed[0][0] if self._timed else NEVER)

    def put(self, time: int, commands: Iterable[Command]) -> None:
        """Add these commands, at this time; the engine sees all of them or none."""
        for command in commands:
            heappush(self._timed, (time, next(self._numbers), command))

    def poll(self) -> list[Command]:
        due, now = list[Command](), self._clock.now()
        self._wake_at = now  # unless it waits, it is asked again at once
        while self._timed and self._timed[0][0] <= now:
            due.append(heappop(self._timed)[2])
        return due

    def wait(self, until: int, least: int = 1) -> None:
        self._wake_at = until


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a step, once all others are as late."""

    at: int
    events: list[Event]
    steps: list[StepRow]
    rows: list[RequestRow]
    drains: dict[str, float]  # by lane: prompt tokens that start per second; 0: not known yet


@dataclass(eq=False, slots=True)
class Member:
    """One engine of several."""

    scheduler: Scheduler
    make: Callable[[VirtualClock], PricedExecutor]
    hear: Callable[[Told], object]
    clock: VirtualClock = field(default_factory=VirtualClock)
    inbox: SharedInbox = field(init=False)
    engine: Engine = field(init=False)
    _priced: PricedExecutor = field(init=False)
    told: Told | None = None  # of its latest step, until it is told

    def __post_init__(self) -> None:
        self.inbox = SharedInbox(self.clock)
        self._priced = self.make(self.clock)
        self.engine = Engine(self.scheduler, self._priced, self.inbox, self.clock)

    @property
    def next(self) -> tuple[int, int]:
        """When it is its turn, and for what."""
        if self.told is not None:
            return self.told.at, TELL
        return max(self.clock.now(), self.inbox.next_at), STEP

    def take_turn(self, now: int) -> None:
        """Tell what came of its last step, or take the next one."""
        if self.told is not None:
            told, self.told = self.told, None
            self.hear(told)
            return
        self.clock.advance_to(now)
        events = self.engine.step()
        steps, rows = self.scheduler.ledger.take()
        if events or steps:
            drains = {name: line.drain for name, line in self.engine.load.lanes.items()}
            self.told = Told(self.clock.now(), events, steps, rows, drains)
        self._priced.settle()


class Together:
    """Runs engines and arrivals until nothing is left to happen."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._members = tuple(members)

    def run(self, arrivals: Iterable[int], arrive: Callable[[int], object]) -> None:
        """arrivals: nanoseconds, ascending. arrive: called at each of them."""
        times: Iterator[int] = iter(arrivals)
        following = next(times, NEVER)
        while True:
            turns = [(*member.next, place) for place, member in enumerate(self._members)]
            at, kind, place = min(turns)
            if following != NEVER and (following, ARRIVE) < (at, kind):
                arrive(following)
                following = next(times, NEVER)
            elif at == NEVER:
                return
            else:
                self._members[place].take_turn(at)
