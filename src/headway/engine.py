"""The one loop: decide, execute, learn. Serving and simulating differ in what is handed in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from headway.core.batch import Batch, Event, Output
from headway.core.commands import Command
from headway.core.scheduler import Scheduler
from headway.journal.record import Record, digest


class Clock(Protocol):
    def now(self) -> int:
        """Nanoseconds since some fixed moment; never less than it said before."""
        ...


class Inbox(Protocol):
    def poll(self) -> Sequence[Command]:
        """What has come since it was last asked, in one order."""
        ...

    def wait(self, until: int) -> None:
        """Return when a command is there or the time has come."""
        ...


class Executor(Protocol):
    def submit(self, batch: Batch) -> int:
        """Begin a step and return its ticket. Whatever it raises, it has then dropped who has
        ended and taken in who begins: what is told once is not told again. One that cannot begin
        raises nothing: its rows are errors, and the others are computed."""
        ...

    def collect(self, ticket: int) -> Output:
        """Wait for the step of this ticket, and return what came of it."""
        ...


def forgotten(record: Record) -> None:
    """What an engine does with its journal's records where nobody keeps them."""


class Engine:
    """Depth one: it collects a step before it decides the next."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        inbox: Inbox,
        clock: Clock,
        keep: Callable[[Record], object] = forgotten,
    ) -> None:
        self.scheduler, self.executor = scheduler, executor
        self.inbox, self.clock, self.keep = inbox, clock, keep
        self.load = scheduler.load(clock.now())  # the latest; any thread may read it

    def step(self) -> list[Event]:
        """Take in what came, run one step if there is one, else wait; what is new for callers."""
        commands = tuple(self.inbox.poll())
        now = done = self.clock.now()
        events = self.scheduler.apply(commands, now)
        batch, output = self.scheduler.schedule(now), Output()
        if batch.rows:
            decided = self.clock.now() - now
            output = self.executor.collect(self.executor.submit(batch))
            done = self.clock.now()
            output = replace(output, host=output.host + decided) if decided else output
            events += self.scheduler.commit(batch, output, done)
        self.load = self.scheduler.load(done)
        if batch.rows or commands or events:
            if self.keep is not forgotten:
                self.keep(_record(batch, now, commands, output, done - now))
        elif not self.scheduler.finished:
            self.inbox.wait(batch.wake_at)
        return events


def _record(
    batch: Batch, now: int, commands: tuple[Command, ...], output: Output, spent: int
) -> Record:
    return Record(
        step=batch.step,
        now=now,
        commands=commands,
        tokens=output.tokens,
        errors=dict(output.errors),
        nanoseconds=spent,
        host=output.host,
        digest=digest(batch.rows),
    )
