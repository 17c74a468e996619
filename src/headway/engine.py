"""The one loop: decide, execute, learn (Engine), and the protocols of what it is handed.

Serving and simulating differ only in the clock, the inbox and the executor.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from headway.core.batch import Batch, Event, Output
from headway.core.commands import Command
from headway.core.grammar import Grammar
from headway.core.scheduler import Scheduler
from headway.errors import SettingError
from headway.executor.traits import EVERYTHING, Traits
from headway.journal.record import Record, digest


class Clock(Protocol):
    """Where the engine gets the time: wall time when live, virtual time in a simulation."""

    def now(self) -> int:
        """Nanoseconds since some fixed moment. It never runs backwards."""
        ...


class Inbox(Protocol):
    """Where the engine gets its commands."""

    def poll(self) -> Sequence[Command]:
        """The commands since the last call, in one order."""
        ...

    def wait(self, until: int, least: int = 1) -> None:
        """Return when there are so many commands, or at this time. A live inbox also returns when
        a step is back."""
        ...


class Executor(Protocol):
    """What computes the steps: a model on a device, or a stand-in for one.

    A class that inherits from this one does everything (Traits), and has nothing to compile and
    nothing to prepare, unless it says otherwise.
    """

    traits: Traits = EVERYTHING  # what it takes and can do; they never change

    def compile(self, grammar: Grammar) -> None:
        """Compile a grammar ahead of the step that begins with it. From any thread.

        Raises SettingError or TokenizerError for one that it cannot obey.
        """
        return None

    def prepare(self, tokens: int, sampled: int, seconds: float) -> None:
        """Do before the first step what would hold later ones, for `seconds` at most.

        tokens and sampled: the most tokens and sampled rows of a step.
        """
        return None

    def submit(self, batch: Batch) -> int:
        """Begin a step and return its ticket.

        Each sequence's beginning and end is told once. So if this raises, it has still dropped
        those that ended and taken in those that begin. A sequence that cannot begin raises
        nothing: its rows become errors, and the others are computed.
        """
        ...

    def collect(self, ticket: int) -> Output:
        """Wait for the step with this ticket, and return its output."""
        ...

    def is_back(self, ticket: int) -> bool:
        """Whether the step with this ticket has been computed. Asked of an executor that tells when
        one is (Traits.tells_back)."""
        return True

    def on_back(self, tell: Callable[[], object]) -> None:
        """Call `tell`, from any thread, each time that a step has been computed."""
        return None

    def on_failure(self, tell: Callable[[str], object]) -> None:
        """Call `tell` with the cause, from any thread, if no step can be computed any more and
        that is known before the next one."""
        return None

    def close(self) -> None:
        """Give back what it holds beyond this process's memory. There is no step afterwards."""
        return None


FEW = 8  # commands that are taken in together while a step is computed: one by one costs more


def forgotten(record: Record) -> None:
    """The `keep` of an engine without a journal: records are not even made."""


class Engine:
    """With a depth of 1 (Settings) it collects each step before it decides the next one.

    With 2, a step is decided and submitted while the one before it is computed:

    host    | decide 2 |  wait  | commit 1, decide 3 |  wait  | commit 2, decide 4 | ...
    device  |        step 1     |        step 2               |        step 3          | ...

    Where the scheduler cannot look ahead, the next step waits for this one, as with a depth of 1.

    An executor that tells when a step is back (a function's) is not waited for: commands are taken
    in meanwhile. Once it is back, the next step is decided and submitted before callers hear of it.

    host    | submit 1 | take in | take in |   wait   | commit 1, submit 2 | tell 1 | take in | ...
    device             |            step 1            |                    |       step 2      ...
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        inbox: Inbox,
        clock: Clock,
        keep: Callable[[Record], object] = forgotten,
    ) -> None:
        """Raises SettingError if the executor cannot obey the scheduler's settings (Traits), or if
        its steps cannot be kept."""
        executor.traits.check(scheduler.settings)
        self._tells_back = executor.traits.tells_back
        if self._tells_back and keep is not forgotten:
            raise SettingError(f"a journal cannot repeat the steps of {executor.traits.name}")
        scheduler.roster.tells_tokens = executor.traits.wants_tokens
        self.scheduler, self.executor = scheduler, executor
        self.inbox, self.clock, self.keep = inbox, clock, keep
        self._flights = deque[_Flight]()  # submitted and not collected, in their order
        self.load = scheduler.load(clock.now())  # the latest; any thread may read it

    def step(self) -> list[Event]:
        """Take in commands, submit a step and collect the oldest; if there is none, wait. Returns
        what callers are to hear."""
        events = self._take_back()
        if events and self._flights:  # the next step is computed already: callers first
            return events
        commands = tuple(self.inbox.poll())
        now = done = self.clock.now()
        events += self.scheduler.apply(commands, now)
        batch, output, flights = Batch(), Output(), self._flights
        if self._may_schedule:
            batch = self.scheduler.schedule(now)
        events += self.scheduler.newcomers.take_events()
        if batch.rows:
            decided = 0 if flights else self.clock.now() - now  # else the device was busy
            flights.append(_Flight(batch, self.executor.submit(batch), decided))
        collected = 0
        if flights and not self._tells_back and not (batch.rows and self._has_room):
            flight = flights.popleft()
            collected, output = flight.batch.step, self.executor.collect(flight.ticket)
            done = self.clock.now()
            if flight.decided:
                output = replace(output, host=output.host + flight.decided)
            events += self.scheduler.commit(flight.batch, output, done)
        self.load = self.scheduler.load(done)
        # A turn in which nothing is computed is kept, too: the scheduler may have looked ahead.
        if self.keep is not forgotten:
            self.keep(_record(batch, now, commands, collected, output, done - now))
        if not (batch.rows or collected or events) and (flights or not commands):
            self._wait(batch.wake_at)
        return events

    def _take_back(self) -> list[Event]:
        """Commit the steps that are back, if the executor tells."""
        events, flights = list[Event](), self._flights
        while self._tells_back and flights and self.executor.is_back(flights[0].ticket):
            flight, done = flights.popleft(), self.clock.now()
            output = self.executor.collect(flight.ticket)
            events += self.scheduler.commit(flight.batch, output, done)
            self.load = self.scheduler.load(done)
        return events

    @property
    def _has_room(self) -> bool:
        """Whether one more step may be in flight."""
        return len(self._flights) < self.scheduler.settings.depth

    @property
    def _may_schedule(self) -> bool:
        return not self._flights or (self._has_room and self.scheduler.may_look_ahead)

    def _wait(self, until: int) -> None:
        """For commands, or until then, if there is nothing else to do."""
        if not self.scheduler.finished:
            self.inbox.wait(until, FEW if self._flights else 1)


class _Flight(NamedTuple):
    batch: Batch
    ticket: int  # the executor's
    decided: int  # nanoseconds in which the device had nothing to do while it was decided


def _record(
    batch: Batch,
    now: int,
    commands: tuple[Command, ...],
    collected: int,
    output: Output,
    spent: int,
) -> Record:
    return Record(
        step=batch.step,
        now=now,
        commands=commands,
        collected=collected,
        tokens=output.tokens,
        errors=dict(output.errors),
        nanoseconds=spent,
        host=output.host,
        digest=digest(batch.rows),
    )
