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

    def wait(self, until: int) -> None:
        """Return when there is a command, or at this time."""
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

    def on_failure(self, tell: Callable[[str], object]) -> None:
        """Call `tell` with the cause, from any thread, if no step can be computed any more and
        that is known before the next one."""
        return None

    def close(self) -> None:
        """Give back what it holds beyond this process's memory. There is no step afterwards."""
        return None


def forgotten(record: Record) -> None:
    """The `keep` of an engine without a journal: records are not even made."""


class Engine:
    """With a depth of 1 (Settings) it collects each step before it decides the next one.

    With 2, a step is decided and submitted while the one before it is computed:

    host    | decide 2 |  wait  | commit 1, decide 3 |  wait  | commit 2, decide 4 | ...
    device  |        step 1     |        step 2               |        step 3          | ...

    Where the scheduler cannot look ahead, the next step waits for this one, as with a depth of 1.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        inbox: Inbox,
        clock: Clock,
        keep: Callable[[Record], object] = forgotten,
    ) -> None:
        """Raises SettingError if the executor cannot obey the scheduler's settings (Traits)."""
        executor.traits.check(scheduler.settings)
        scheduler.roster.tells_tokens = executor.traits.wants_tokens
        self.scheduler, self.executor = scheduler, executor
        self.inbox, self.clock, self.keep = inbox, clock, keep
        self._flights = deque[_Flight]()  # submitted and not collected, in their order
        self.load = scheduler.load(clock.now())  # the latest; any thread may read it

    def step(self) -> list[Event]:
        """Take in commands, submit a step and collect the oldest; if there is none, wait. Returns
        what callers are to hear."""
        commands = tuple(self.inbox.poll())
        now = done = self.clock.now()
        events = self.scheduler.apply(commands, now)
        batch, output, flights = Batch(), Output(), self._flights
        if not flights or self.scheduler.may_look_ahead:
            batch = self.scheduler.schedule(now)
        events += self.scheduler.newcomers.take_events()
        if batch.rows:
            decided = 0 if flights else self.clock.now() - now  # else the device was busy
            flights.append(_Flight(batch, self.executor.submit(batch), decided))
        collected = 0
        if flights and (not batch.rows or len(flights) == self.scheduler.settings.depth):
            flight = flights.popleft()
            collected, output = flight.batch.step, self.executor.collect(flight.ticket)
            done = self.clock.now()
            if flight.decided:
                output = replace(output, host=output.host + flight.decided)
            events += self.scheduler.commit(flight.batch, output, done)
        self.load = self.scheduler.load(done)
        if batch.rows or collected or commands or events:
            if self.keep is not forgotten:
                self.keep(_record(batch, now, commands, collected, output, done - now))
        elif not self.scheduler.finished:
            self.inbox.wait(batch.wake_at)
        return events


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
