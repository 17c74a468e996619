"""Where the time went: a RequestRow for each request, a StepRow for each step, and the Ledger.

Every metric is a property of a row.
"""

from dataclasses import dataclass
from typing import NamedTuple

from headway.core.batch import Batch
from headway.core.lane import Budget
from headway.core.request import BY_ITSELF, COMPUTED, NEVER, Finish, Request
from headway.core.sequences.sequence import Sequence


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request that has ended. Times in nanoseconds; NEVER for what did not happen."""

    id: str
    lane: str
    budget: Budget
    finish: Finish
    arrived: int
    first_scheduled: int  # or when the choice whose prompt it shares was
    first_token: int
    last_token: int
    finished: int
    prompt: int  # tokens
    generated: int
    cached: int
    discarded: int
    preemptions: int
    nanoseconds: int  # its shares of the steps it was in
    recomputed: int = 0  # tokens computed again after preemptions
    relegated: bool = False  # at some time it was expected to be late, and went behind the others
    promised_first: int = NEVER  # promised time of its first token: as likely early as late
    promised_end: int = NEVER  # promised end: 9 in 10 requests end by it
    tenant: str = ""  # who sent it
    version: int = 0  # the configuration's number when it arrived; 0: none

    @property
    def ttft(self) -> int:
        return NEVER if self.first_token == NEVER else self.first_token - self.arrived

    @property
    def tpot(self) -> int:
        """Mean gap between tokens; 0 if there are fewer than two."""
        if self.generated < 2:
            return 0
        return (self.last_token - self.first_token) // (self.generated - 1)

    @property
    def e2e(self) -> int:
        return self.finished - self.arrived

    @property
    def queue(self) -> int:
        return NEVER if self.first_scheduled == NEVER else self.first_scheduled - self.arrived

    @property
    def first_error(self) -> int:
        """Nanoseconds by which its first token came later than promised; negative: earlier. NEVER:
        there is no first token or no promise."""
        if NEVER in (self.first_token, self.promised_first):
            return NEVER
        return self.first_token - self.promised_first

    @property
    def was_promised(self) -> bool:
        """Whether the request ended by itself and had been promised an end."""
        return self.promised_end != NEVER and self.is_whole

    @property
    def kept_promise(self) -> bool:
        """Whether the request ended by itself by its promised end."""
        return self.was_promised and self.finished <= self.promised_end

    @property
    def is_whole(self) -> bool:
        """Whether the request ended by itself (BY_ITSELF)."""
        return self.finish in BY_ITSELF

    @property
    def _has_no_first(self) -> bool:
        """Whether the request wanted no token, or a stop string took back those it had. A request
        that wanted tokens and never got one is neither."""
        wanted_none = self.finish is COMPUTED or self.first_token != NEVER
        return self.generated == 0 and wanted_none

    @property
    def good(self) -> bool:
        """Whether the request ended by itself, inside every limit of its lane."""
        return (
            self.is_whole
            and (self.ttft <= self.budget.ttft or self._has_no_first)
            and self.tpot <= self.budget.tpot
            and self.e2e <= self.budget.e2e
            and self.queue <= self.budget.queue
        )


class StepRow(NamedTuple):
    """One step. A named tuple, because long simulations make many of them."""

    step: int
    began: int  # nanoseconds; not before the previous step ended
    nanoseconds: int
    waste_nanoseconds: int  # of them, for padding, held slots and sequences that had ended
    rows: int
    tokens: int
    decodes: int  # rows of one token
    held: int  # finished slots of an exclusive group
    width: int  # tokens that rows and held slots were padded to; 0: no padding
    running: int  # after the step
    waiting: int
    free_blocks: int
    host: int = 0  # nanoseconds of the step in which the device waited for the host

    @property
    def held_tokens(self) -> int:
        """Tokens computed for slots whose sequence had ended."""
        return self.held * self.width

    @property
    def padding_tokens(self) -> int:
        """Tokens computed to the right of the rows' own."""
        return self.rows * self.width - self.tokens if self.width else 0

    @property
    def waste_tokens(self) -> int:
        return self.held_tokens + self.padding_tokens

    @property
    def useful(self) -> float:
        """Share of the computed tokens that belong to requests."""
        return self.tokens / (self.tokens + self.waste_tokens)


@dataclass(frozen=True, slots=True)
class SizeChange:
    """A change of a size that follows the load."""

    lane: str  # empty: all lanes
    what: str  # slots, group or window
    before: int  # sequences; of a window, nanoseconds
    after: int
    reason: str  # in words
    at: int  # nanoseconds


def step_row(
    batch: Batch, tokens: int, spent: tuple[int, int, int, int], left: tuple[int, int, int]
) -> StepRow:
    """Make the row of a step. spent: when it began, its nanoseconds, those wasted and the host's.
    left: running and waiting sequences, and free blocks, after the step."""
    (began, nanoseconds, wasted, host), (running, waiting, free_blocks) = spent, left
    rows = len(batch.rows)
    return StepRow(
        step=batch.step,
        began=began,
        nanoseconds=nanoseconds,
        waste_nanoseconds=wasted,
        rows=rows,
        tokens=tokens,
        decodes=rows if tokens == rows else [len(row.tokens) for row in batch.rows].count(1),
        held=batch.held,
        width=batch.width,
        running=running,
        waiting=waiting,
        free_blocks=free_blocks,
        host=host,
    )


class Ledger:
    """Keeps rows until they are taken, and the sums that `check` compares."""

    def __init__(self) -> None:
        self.steps: list[StepRow] = []
        self.requests: list[RequestRow] = []
        self.changes: list[SizeChange] = []
        self.spent = 0  # nanoseconds of all steps
        self.wasted = 0  # nanoseconds of waste in them
        self.settled = 0  # nanoseconds in the rows of requests

    def add(self, row: StepRow) -> None:
        """Keep the row of a step."""
        self.steps.append(row)
        self.spent += row.nanoseconds
        self.wasted += row.waste_nanoseconds

    def extend(self, rows: list[StepRow]) -> None:
        """Keep the rows of several steps."""
        self.steps += rows
        self.spent += sum([row.nanoseconds for row in rows])
        self.wasted += sum([row.waste_nanoseconds for row in rows])

    def close(self, sequence: Sequence, budget: Budget, finish: Finish, now: int) -> RequestRow:
        """Make and keep the row of a request that has ended now."""
        request = sequence.request
        self.settled += sequence.nanoseconds
        row = RequestRow(
            id=request.id,
            lane=request.lane,
            budget=budget,
            finish=finish,
            arrived=request.arrived,
            first_scheduled=sequence.waited_until,
            first_token=sequence.first_token,
            last_token=sequence.last_token,
            finished=now,
            prompt=len(request.prompt),
            generated=sequence.generated,
            cached=sequence.cached,
            discarded=sequence.discarded,
            preemptions=sequence.preemptions,
            nanoseconds=sequence.nanoseconds,
            recomputed=sequence.recomputed,
            relegated=sequence.was_relegated,
            promised_first=sequence.promise.first,
            promised_end=sequence.promise.end,
            tenant=request.tenant,
            version=sequence.version,
        )
        self.requests.append(row)
        return row

    def refuse(self, request: Request, budget: Budget, version: int, now: int) -> RequestRow:
        """Make and keep the row of a request that was refused."""
        refused = Sequence(-1, request, request.tokens(), None, version)
        return self.close(refused, budget, Finish.REFUSED, now)

    def take(self) -> tuple[list[StepRow], list[RequestRow]]:
        """Return the rows of steps and requests, and drop them."""
        taken = self.steps, self.requests
        self.steps, self.requests = [], []
        return taken

    def take_changes(self) -> tuple[SizeChange, ...]:
        """Return the changes of sizes, and drop them."""
        taken, self.changes = (*self.changes,), []
        return taken

    def check(self, open_nanoseconds: int) -> None:
        """Raise AssertionError unless each nanosecond is in one account: ended, open or waste."""
        assert self.settled + open_nanoseconds + self.wasted == self.spent
