"""Where the time went: one row per request and one per step. Metrics are their properties."""

from dataclasses import dataclass
from typing import NamedTuple

from headway.core.lane import Budget
from headway.core.request import NEVER, Finish
from headway.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class RequestRow:
    """Times in nanoseconds; NEVER for what did not happen."""

    id: str
    lane: str
    budget: Budget
    finish: Finish
    arrived: int
    first_scheduled: int  # it, or the prompt that it shares with the choice before it
    first_token: int
    last_token: int
    finished: int
    prompt: int  # tokens
    generated: int
    cached: int
    discarded: int
    preemptions: int
    nanoseconds: int  # of device time: its shares of the steps it was in
    recomputed: int = 0  # tokens computed again after preemptions

    @property
    def ttft(self) -> int:
        return NEVER if self.first_token == NEVER else self.first_token - self.arrived

    @property
    def tpot(self) -> int:
        """Mean gap between tokens; 0 where there are none to speak of."""
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
    def good(self) -> bool:
        """It ended by itself, inside every limit of its lane."""
        return (
            self.finish in (Finish.STOP, Finish.LENGTH, Finish.COMPUTED)
            and (self.ttft <= self.budget.ttft or self.generated == 0)
            and self.tpot <= self.budget.tpot
            and self.e2e <= self.budget.e2e
            and self.queue <= self.budget.queue
        )


class StepRow(NamedTuple):
    """A named tuple, because long simulations make little else."""

    step: int
    began: int  # nanoseconds; not before the step ahead of it had ended
    nanoseconds: int
    waste_nanoseconds: int  # of them: for padding, held slots and sequences that had ended
    rows: int
    tokens: int
    decodes: int  # rows of one token
    held: int  # finished slots of an exclusive group
    width: int  # tokens to which rows and held slots were padded; 0: not padded
    running: int  # after it
    waiting: int
    free_blocks: int
    host: int = 0  # nanoseconds of them in which the device waited: deciding, inputs, sampling

    @property
    def held_tokens(self) -> int:
        """Computed for slots whose sequence had ended."""
        return self.held * self.width

    @property
    def padding_tokens(self) -> int:
        """Computed to the right of the rows' own tokens."""
        return self.rows * self.width - self.tokens if self.width else 0

    @property
    def waste_tokens(self) -> int:
        return self.held_tokens + self.padding_tokens

    @property
    def useful(self) -> float:
        """Share of the computed tokens that somebody had asked for."""
        return self.tokens / (self.tokens + self.waste_tokens)


class Ledger:
    """Rows until someone takes them, and the sums by which check() proves the rows."""

    def __init__(self) -> None:
        self.steps: list[StepRow] = []
        self.requests: list[RequestRow] = []
        self.spent = 0  # nanoseconds of all steps
        self.wasted = 0  # of them
        self.settled = 0  # nanoseconds in the rows of ended requests

    def add(self, row: StepRow) -> None:
        self.steps.append(row)
        self.spent += row.nanoseconds
        self.wasted += row.waste_nanoseconds

    def extend(self, rows: list[StepRow]) -> None:
        self.steps += rows
        self.spent += sum([row.nanoseconds for row in rows])
        self.wasted += sum([row.waste_nanoseconds for row in rows])

    def close(self, sequence: Sequence, budget: Budget, finish: Finish, now: int) -> None:
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
        )
        self.requests.append(row)

    def take(self) -> tuple[list[StepRow], list[RequestRow]]:
        taken = self.steps, self.requests
        self.steps, self.requests = [], []
        return taken

    def check(self, open_nanoseconds: int) -> None:
        """Every nanosecond of every step is in one account: ended, running or waste."""
        assert self.settled + open_nanoseconds + self.wasted == self.spent
