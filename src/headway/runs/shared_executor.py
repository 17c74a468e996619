"""One executor for the runs of a comparison (SharedExecutor)."""

from dataclasses import replace

from headway.core.batch import Batch, Output
from headway.engine import Executor
from headway.executor.forwarding import Forwarding


class SharedExecutor(Forwarding):
    """One executor that several schedulers use, one after another.

    A scheduler tells the executor in its next batch which sequences have ended. After a run's last
    batch there is no next one, so the first batch of the next run says it. Steps of a run that was
    broken off are collected then.
    """

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._open: set[int] = set()
        self._left: tuple[int, ...] = ()
        self._in_flight: list[int] = []  # tickets

    def hand_over(self) -> None:
        """Expect the next batch from a new scheduler."""
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
