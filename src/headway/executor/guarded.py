"""GuardedExecutor: a step that fails ends its own requests, not the engine."""

import logging
from dataclasses import replace

from headway.core.batch import Batch, Begun, Output, Row, Want
from headway.core.kv.blocks import SCRATCH
from headway.core.sampling import Sampling
from headway.engine import Executor
from headway.errors import EngineDownError, first_line
from headway.executor.forwarding import Forwarding

MOST_FAILURES = 3  # failed steps in a row, after which a probe shows whether any step works
PROBE_SEQUENCE = -1  # the sequence of the probe: no request has this number
# A step that belongs to no request: one token, in the scratch block.
PROBE = Batch(
    rows=(Row(PROBE_SEQUENCE, 0, (0,), (SCRATCH,), Want.LAST),),
    begun=(Begun(PROBE_SEQUENCE, 1, Sampling(), (0,)),),
)


class GuardedExecutor(Forwarding):
    """Wrap an executor. An exception in a step becomes an error of each of the step's rows.

    The requests of those rows end with the error. Their blocks are freed and not published to the
    prefix cache, and the next step serves waiting requests. After MOST_FAILURES failed steps in a
    row, a probe step runs that belongs to no request. If it fails too, no step works, and the
    engine ends. If it succeeds, the requests were the cause, and the engine goes on.
    An EngineDownError means that no step works, and ends the engine at once.
    """

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._rows: dict[int, int] = {}  # rows of a step, by ticket
        self._failed: dict[int, Output] = {}  # by ticket: steps that could not be submitted
        self._failures = 0  # failed steps in a row
        self._probed: tuple[int, ...] = ()  # the probe's sequence, to be dropped with the next step

    def submit(self, batch: Batch) -> int:
        if self._probed:
            batch, self._probed = replace(batch, ended=(*self._probed, *batch.ended)), ()
        try:
            ticket = self.executor.submit(batch)
        except EngineDownError:  # the executor cannot compute another step
            raise
        except Exception as error:
            self._failed[batch.step] = self._output(len(batch.rows), error)
            return batch.step
        self._rows[ticket] = len(batch.rows)
        return ticket

    def is_back(self, ticket: int) -> bool:
        return ticket in self._failed or self.executor.is_back(ticket)

    def collect(self, ticket: int) -> Output:
        if failed := self._failed.pop(ticket, None):
            return failed
        rows = self._rows.pop(ticket)
        try:
            output = self.executor.collect(ticket)
        except EngineDownError:
            raise
        except Exception as error:
            return self._output(rows, error)
        self._failures = 0
        return output

    def _output(self, rows: int, error: Exception) -> Output:
        self._failures += 1
        if self._failures == MOST_FAILURES:
            if not self._probe_works():
                raise error
            self._failures = 0
        logging.getLogger("headway.engine").error("a step of %d rows failed", rows, exc_info=error)
        why = f"the step failed: {first_line(error)}"
        return Output(((),) * rows, errors=dict.fromkeys(range(rows), why))

    def _probe_works(self) -> bool:
        """Whether the executor can still compute a step."""
        try:
            output = self.executor.collect(self.executor.submit(PROBE))
        except Exception as error:
            logging.getLogger("headway.engine").error("the probe step failed too", exc_info=error)
            return False
        self._probed = (PROBE_SEQUENCE,)
        return not output.errors
