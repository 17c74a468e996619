"""An executor that fails the rows of a step, and not the engine."""

import logging

from headway.core.batch import Batch, Output
from headway.engine import Executor

MOST = 3  # failed steps in a row: the last one is raised


class Guarded:
    """What another executor raises becomes an error of each row of that step.

    Their requests end with it, their blocks are free and never offered to others, and those who
    wait are served by the next step. MOST in a row mean that no step works: the engine ends.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._rows: dict[int, int] = {}  # by ticket
        self._failed: dict[int, Output] = {}  # by ticket: steps that could not be begun
        self._faults = 0  # in a row

    def submit(self, batch: Batch) -> int:
        try:
            ticket = self.executor.submit(batch)
        except Exception as error:
            self._failed[batch.step] = self._output(len(batch.rows), error)
            return batch.step
        self._rows[ticket] = len(batch.rows)
        return ticket

    def collect(self, ticket: int) -> Output:
        if failed := self._failed.pop(ticket, None):
            return failed
        rows = self._rows.pop(ticket)
        try:
            output = self.executor.collect(ticket)
        except Exception as error:
            return self._output(rows, error)
        self._faults = 0
        return output

    def _output(self, rows: int, error: Exception) -> Output:
        self._faults += 1
        if self._faults == MOST:
            raise error
        logging.getLogger("headway.engine").error("a step of %d rows failed", rows, exc_info=error)
        why = f"the step failed: {cause(error)}"
        return Output(((),) * rows, errors=dict.fromkeys(range(rows), why))


def cause(error: BaseException) -> str:
    """In one line: its first, or its kind."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__
