"""The one loop: decide, execute, learn (Engine), and the protocols of its parts.

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
        """Return when `least` commands wait, or at time `until`. A live inbox also returns when a
        step is back, or at the deadline of a command that waits."""
        ...


class Executor(Protocol):
    """What computes the steps: a model on a device, or a stand-in for one.

    By default, a subclass has the traits EVERYTHING, with nothing to compile or prepare.
    """

    traits: Traits = EVERYTHING  # what the executor takes and can do; they never change

    def compile(self, grammar: Grammar) -> None:
        """Compile a grammar before the first step that uses it. May be called from any thread.

        Raises SettingError or TokenizerError for a grammar that it cannot obey.
        """
        return None

    def prepare(self, tokens: int, sampled: int, seconds: float) -> None:
        """Do work ahead of the first step that would delay later steps, for at most `seconds`.

        tokens and sampled: the most tokens and sampled rows of a step.
        """
        return None

    def submit(self, batch: Batch) -> int:
        """Begin a step and return its ticket.

        The engine names each sequence that begins or ends only once. So even if `submit` raises,
        it must first drop the ended sequences and take in the new ones. A sequence that cannot
        begin raises nothing: its rows become errors, and the other rows are computed.
        """
        ...

    def collect(self, ticket: int) -> Output:
        """Wait for the step with this ticket, and return its output."""
        ...

    def is_back(self, ticket: int) -> bool:
        """Whether the step with this ticket has been computed. The engine asks only executors with
        Traits.tells_back."""
        return True

    def on_back(self, tell: Callable[[], object]) -> None:
        """Call `tell`, from any thread, each time a step has been computed."""
        return None

    def on_failure(self, tell: Callable[[str], object]) -> None:
        """Call `tell` with the cause, from any thread, if the executor learns between steps that
        it cannot compute any more."""
        return None

    def close(self) -> None:
        """Release everything held outside this process's memory. No step follows."""
        return None


FEW = 8  # commands to wait for while a step is computed: taking them in one by one costs more


def forgotten(record: Record) -> None:
    """The `keep` of an engine without a journal. The engine then makes no records at all."""


class Engine:
    """The engine. With depth 1 (Settings), it collects each step before it decides the next one.

    With depth 2, it decides and submits a step while the previous step is computed:

    host    | decide 2 |  wait  | commit 1, decide 3 |  wait  | commit 2, decide 4 | ...
    device  |        step 1     |        step 2               |        step 3          | ...

    When the scheduler cannot look ahead, the next step waits for this one, as with depth 1.

    The engine does not block on an executor that tells when a step is back (a function's): it takes
    in commands meanwhile. Once a step is back, it submits the next one before it tells callers.

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
        a journal cannot record its steps."""
        executor.traits.check(scheduler.settings)
        self._tells_back = executor.traits.tells_back
        if self._tells_back and keep is not forgotten:
            raise SettingError(f"a journal cannot repeat the steps of {executor.traits.name}")
        scheduler.roster.tells_tokens = executor.traits.wants_tokens
        self.scheduler, self.executor = scheduler, executor
        self.inbox, self.clock, self.keep = inbox, clock, keep
        self._flights = deque[_Flight]()  # steps submitted and not yet collected, in order
        self.load = scheduler.load(clock.now())  # the latest snapshot; any thread may read it

    def step(self) -> list[Event]:
        """Take in commands, submit a step and collect the oldest one. Wait if there is nothing to
        do. Returns the events to tell callers."""
        events = self._take_back()
        if events and self._flights:  # the next step is already running, so tell callers first
            return events
        commands = tuple(self.inbox.poll())
        now = done = self.clock.now()
        events += self.scheduler.apply(commands, now)
        batch, output, flights = Batch(), Output(), self._flights
        if self._may_schedule:
            batch = self.scheduler.schedule(now)
        events += self.scheduler.newcomers.take_events()
        if batch.rows:
            decided = 0 if flights else self.clock.now() - now  # 0: the device was busy meanwhile
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
        # A turn without a step is recorded too: the scheduler may have looked ahead in it.
        if self.keep is not forgotten:
            self.keep(_record(batch, now, commands, collected, output, done - now))
        if not (batch.rows or collected or events) and (flights or not commands):
            self._wait(batch.wake_at)
        return events

    def _take_back(self) -> list[Event]:
        """Commit the steps that are back, if the executor tells when they are (Traits)."""
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
        """Wait for commands, at most until this time or the next deadline, unless the scheduler
        has finished."""
        if not self.scheduler.finished:
            until = min(until, self.scheduler.roster.deadlines.next)
            self.inbox.wait(until, FEW if self._flights else 1)


class _Flight(NamedTuple):
    batch: Batch
    ticket: int  # from the executor
    decided: int  # nanoseconds that the device was idle while the step was decided


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
