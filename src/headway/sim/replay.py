"""Feed a journal back: the same commands at the same steps, the same tokens and times (replay)."""

from collections import deque
from collections.abc import Iterable

from headway.core.batch import Batch, Event, Output
from headway.core.commands import Command
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine, Executor
from headway.errors import JournalError
from headway.journal.record import Record, digest


class JournalInbox(Executor):
    """Clock, inbox and executor in one, because a record has what each of them says."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.left = deque(records)
        self._now = 0

    def now(self) -> int:
        return self._now

    def poll(self) -> tuple[Command, ...]:
        self._record = self.left.popleft()
        self._now = self._record.now
        return self._record.commands

    def wait(self, until: int) -> None:
        raise JournalError(f"the engine idles where the journal has step {self._record.step}")

    def submit(self, batch: Batch) -> int:
        if (batch.step, len(batch.rows)) != (self._record.step, len(self._record.tokens)):
            raise JournalError(
                f"the run has parted from its journal: step {batch.step} of {len(batch.rows)} rows "
                f"where step {self._record.step} of {len(self._record.tokens)} is written"
            )
        if digest(batch.rows) != self._record.digest:
            raise JournalError(
                f"the run has parted from its journal: step {batch.step} has as many rows as are "
                "written, and other ones"
            )
        return batch.step

    def collect(self, ticket: int) -> Output:
        self._now += self._record.nanoseconds
        return Output(self._record.tokens, errors=self._record.errors, host=self._record.host)


def replay(settings: Settings, records: Iterable[Record]) -> tuple[Scheduler, list[Event]]:
    """Run a journal to its end. Returns the scheduler, with its ledger, and all events."""
    inbox, scheduler, events = JournalInbox(records), Scheduler(settings), list[Event]()
    engine = Engine(scheduler, inbox, inbox, inbox)
    while inbox.left:
        events += engine.step()
    return scheduler, events
