"""An executor that fails the rows of a step, and not the engine."""

import logging
from dataclasses import replace

from headway.core.batch import Batch, Begun, Output, Row, Want
from headway.core.blocks import SCRATCH
from headway.core.sampling import Sampling
from headway.engine import Executor
from headway.errors import first_line

MOST_FAILURES = 3  # failed steps in a row, after which a trial shows whether any step works
PROBE_SEQUENCE = -1  # the number of a sequence that is no request's
# A step of one token, in the scratch block.
PROBE = Batch(
    rows=(Row(PROBE_SEQUENCE, 0, (0,), (SCRATCH,), Want.LAST),),
    begun=(Begun(PROBE_SEQUENCE, 1, Sampling()),),
)


class GuardedExecutor:
    """What another executor raises becomes an error of each row of that step.

    Their requests end with it, their blocks are free and never offered to others, and those who
    wait are served by the next step. After MOST failures in a row, a trial step is run that
    belongs to no request. If it fails too, no step works, and the engine ends. If it works, the
    requests were to blame, and others are served.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._rows: dict[int, int] = {}  # by ticket
        self._failed: dict[int, Output] = {}  # by ticket: steps that could not be begun
        self._faults = 0  # in a row
        self._tried: tuple[int, ...] = ()  # the trial's sequence, whose state is to be dropped

    def submit(self, batch: Batch) -> int:
        if self._tried:
            batch, self._tried = replace(batch, ended=(*self._tried, *batch.ended)), ()
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
        if self._faults == MOST_FAILURES:
            if not self._works():
                raise error
            self._faults = 0
        logging.getLogger("headway.engine").error("a step of %d rows failed", rows, exc_info=error)
        why = f"the step failed: {first_line(error)}"
        return Output(((),) * rows, errors=dict.fromkeys(range(rows), why))

    def _works(self) -> bool:
        """Whether the executor still computes anything."""
        try:
            output = self.executor.collect(self.executor.submit(PROBE))
        except Exception as error:
            logging.getLogger("headway.engine").error("so does a step of nobody", exc_info=error)
            return False
        self._tried = (PROBE_SEQUENCE,)
        return not output.errors
