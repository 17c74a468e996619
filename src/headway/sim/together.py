"""Several engines in one virtual time (Together): each has its own clock, and none runs ahead.

An engine's step moves that engine's clock to the step's end. The other engines may hear of the
results only once they have reached that time. So the earliest event of all always goes next:

    stage 1 clock   |====== step ======|  <- its events are told, then its next step is decided
    stage 2 clock   |=== step ===|           told first, because it ends first
    arrivals           x      x              in between

This is conservative simulation (Chandy and Misra, IEEE TSE 1979) in one thread. Ties have an order:
results are told first, then requests arrive, then steps are taken; each in engine order.
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
    """An inbox that can be filled while the simulation runs. `wait` only notes the time: it does
    not move the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._timed = list[tuple[int, int, Command]]()
        self._numbers = count()
        self._wake_at = 0  # when to ask the engine again, if no command comes before

    @property
    def next_at(self) -> int:
        """When the engine next has something to do; NEVER: only after another command."""
        return min(self._wake_at, self._timed[0][0] if self._timed else NEVER)

    def put(self, time: int, commands: Iterable[Command]) -> None:
        """Add these commands at this time; the engine sees all of them or none."""
        for command in commands:
            heappush(self._timed, (time, next(self._numbers), command))

    def poll(self) -> list[Command]:
        due, now = list[Command](), self._clock.now()
        self._wake_at = now  # unless the engine waits, it is asked again at once
        while self._timed and self._timed[0][0] <= now:
            due.append(heappop(self._timed)[2])
        return due

    def wait(self, until: int, least: int = 1) -> None:
        self._wake_at = until


@dataclass(frozen=True, slots=True)
class Told:
    """The results of a step, told once no other engine is earlier."""

    at: int
    events: list[Event]
    steps: list[StepRow]
    rows: list[RequestRow]
    drains: dict[str, float]  # prompt tokens that start per second, by lane; 0: not known yet


@dataclass(eq=False, slots=True)
class Member:
    """One engine, with its own clock and inbox."""

    scheduler: Scheduler
    make: Callable[[VirtualClock], PricedExecutor]
    hear: Callable[[Told], object]
    clock: VirtualClock = field(default_factory=VirtualClock)
    inbox: SharedInbox = field(init=False)
    engine: Engine = field(init=False)
    _priced: PricedExecutor = field(init=False)
    told: Told | None = None  # the latest step's results, until `hear` gets them

    def __post_init__(self) -> None:
        self.inbox = SharedInbox(self.clock)
        self._priced = self.make(self.clock)
        self.engine = Engine(self.scheduler, self._priced, self.inbox, self.clock)

    @property
    def next(self) -> tuple[int, int]:
        """When the engine's next turn is, and whether it is TELL or STEP."""
        if self.told is not None:
            return self.told.at, TELL
        return max(self.clock.now(), self.inbox.next_at), STEP

    def take_turn(self, now: int) -> None:
        """Tell the results of the last step, or take the next step."""
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
    """Run engines and arrivals until nothing is left to happen."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._members = tuple(members)

    def run(self, arrivals: Iterable[int], arrive: Callable[[int], object]) -> None:
        """Run to the end. arrivals: nanoseconds, ascending. arrive: called at each arrival."""
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
