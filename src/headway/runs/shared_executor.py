"""One executor for the runs of a comparison (SharedExecutor)."""

from dataclasses import replace

from headway.core.batch import Batch, Output
from headway.engine import Executor
from headway.executor.forwarding import Forwarding


class SharedExecutor(Forwarding):
    """One executor that several schedulers use, one after another.

    A scheduler reports ended sequences to the executor in its next batch. A run's last batch has no
    next one, so the first batch of the next run reports what is still open. hand_over also collects
    the steps that an interrupted run left in flight.
    """

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._open: set[int] = set()
        self._left: tuple[int, ...] = ()
        self._in_flight: list[int] = []  # tickets

    def hand_over(self) -> None:
        """Prepare for a new scheduler, which sends the next batch."""
        for ticket in tuple(self._in_flight):
            self.collect(ticket)
        self._left, self._open = (*self._left, *sorted(self._open)), set()

    def submit(self, batch: Batch) -> int:
        self._open.difference_update(batch.ended)
        self._open.update(begun.sequence for begun in batch.begun)
        if self._left:
            batch, self._left = replace(batch, ended=self._left + batch.ended), ()
        ticket = self.executor.submit(batch)
        self._in_flight.append(ticket)
        return ticket

    def collect(self, ticket: int) -> Output:
        self._in_flight.remove(ticket)
        return self.executor.collect(ticket)
