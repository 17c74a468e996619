"""Replay a journal: the same commands at the same steps, the same tokens and times (replay)."""

from collections import deque
from collections.abc import Iterable

from headway.core.batch import Batch, Event, Output
from headway.core.commands import Command
from headway.core.request import NEVER
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine, Executor
from headway.errors import JournalError
from headway.executor.traits import Traits
from headway.journal.record import Record, digest


class JournalInbox(Executor):
    """Clock, inbox and executor in one, because each journal record holds what all three say."""

    traits = Traits(steps_in_flight=NEVER)  # the journal's settings set the depth

    def __init__(self, records: Iterable[Record]) -> None:
        self.left = deque(records)
        self._now = 0
        self._rows: dict[int, int] = {}  # the number of rows, by step in flight
        self._due = 0  # the step that the record holds, until the scheduler decides it

    def now(self) -> int:
        return self._now

    def poll(self) -> tuple[Command, ...]:
        self._record = self.left.popleft()
        self._now, self._due = self._record.now, self._record.step
        return self._record.commands

    def wait(self, until: int, least: int = 1) -> None:
        if step := self._record.step or self._record.collected:
            raise JournalError(f"the engine idles where the journal has step {step}")

    def submit(self, batch: Batch) -> int:
        if batch.step != self._record.step:
            written = f"step {self._record.step}" if self._record.step else "none"
            raise _parted(f"step {batch.step} is decided where {written} is written")
        if digest(batch.rows) != self._record.digest:
            raise _parted(f"step {batch.step} has other rows than are written")
        self._rows[batch.step], self._due = len(batch.rows), 0
        return batch.step

    def collect(self, ticket: int) -> Output:
        if self._due:
            raise _parted(f"nothing is decided where step {self._due} is written")
        if ticket != self._record.collected:
            raise _parted(f"step {ticket} is back where step {self._record.collected} is written")
        if (rows := self._rows.pop(ticket)) != (written := len(self._record.tokens)):
            raise _parted(f"step {ticket} has {rows} rows where {written} are written")
        self._now += self._record.nanoseconds
        return Output(self._record.tokens, errors=self._record.errors, host=self._record.host)


def _parted(why: str) -> JournalError:
    return JournalError(f"the run has parted from its journal: {why}")


def replay(settings: Settings, records: Iterable[Record]) -> tuple[Scheduler, list[Event]]:
    """Run a journal to its end. Returns the scheduler, which has the ledger, and all events."""
    inbox, scheduler, events = JournalInbox(records), Scheduler(settings), list[Event]()
    engine = Engine(scheduler, inbox, inbox, inbox)
    while inbox.left:
        events += engine.step()
    return scheduler, events
