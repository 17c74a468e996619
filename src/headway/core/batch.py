"""All that crosses a seam: commands in, batches and outputs between, events out.

Plain values of ints and strings. Nothing here references a Sequence, and all of it pickles.
Row and Event are named tuples because one of each is made per token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import NamedTuple

from headway.core.request import NEVER, Finish
from headway.core.sampling import Sampling


class Want(IntFlag):
    """What a row wants of the executor; the two may come together."""

    NOTHING = 0
    LAST = 1  # the last position's logits, sampled
    PROMPT = 2  # of each position the log-probability of the prompt token behind it


class Row(NamedTuple):
    """One sequence's share of a step. In steady decoding: four ints in five fields."""

    sequence: int  # its number
    start: int  # position of the first token to compute
    tokens: tuple[int, ...]  # the tokens to compute
    blocks: tuple[int, ...]  # added to its table since its last row
    want: Want


class Begun(NamedTuple):
    """What the executor keeps of a sequence until it has ended."""

    sequence: int
    prompt: int  # its length: a token sampled at position p is its (p - prompt)th generated one
    sampling: Sampling
    tokens: tuple[int, ...] = ()  # all that are known, where the sampling reads them


@dataclass(frozen=True, slots=True)
class Batch:
    """One step. An exclusive group is a rectangle, every cell of which is computed:

             |<----- width ----->|
    row      | tokens  | padding |      padding and held slots
    row      | tokens            |      write to scratch block 0
    held     | a finished slot   |
    """

    step: int = 0
    rows: tuple[Row, ...] = ()
    begun: tuple[Begun, ...] = ()  # in their first row, or their first since a preemption
    ended: tuple[int, ...] = ()  # executor state to drop, before begun is read
    held: int = 0  # finished slots of an exclusive group
    width: int = 0  # tokens to which rows and held slots are padded; 0: not padded
    wake_at: int = NEVER  # of an empty batch: when it is worth asking again

    @property
    def tokens(self) -> int:
        """Tokens that somebody asked for."""
        return sum([len(row.tokens) for row in self.rows])

    @property
    def padding(self) -> int:
        """Cells to the right of the rows' tokens."""
        return self.width * len(self.rows) - self.tokens if self.width else 0

    @property
    def waste(self) -> int:
        """Cells of the rectangle that are computed for nobody: padding and held slots."""
        return self.padding + self.width * self.held


class Logprob(NamedTuple):
    """Natural logarithms, of the distribution before temperature and filters."""

    sampled: float  # of the token that was sampled
    top: tuple[tuple[int, float], ...] = ()  # the most likely tokens, first the likeliest


Logprobs = Sequence[Logprob]  # of a prompt's tokens; an executor may keep it in columns


@dataclass(frozen=True, slots=True)
class Output:
    """What came of a batch, by its rows."""

    tokens: tuple[tuple[int, ...], ...] = ()  # per row: 0 to k + 1, for k drafted tokens
    logprobs: Mapping[int, tuple[Logprob, ...]] = field(default_factory=dict)  # rows that asked
    errors: Mapping[int, str] = field(default_factory=dict)  # by index of the row
    prompt_logprobs: Mapping[int, Logprobs] = field(default_factory=dict)
    host: int = 0  # nanoseconds of the step in which the device waited for inputs or sampling


class Event(NamedTuple):
    """New tokens of a request, or its end, or both."""

    id: str
    tokens: tuple[int, ...] = ()
    finish: Finish = Finish.NOT_YET
    error: str = ""
    logprobs: tuple[Logprob, ...] = ()  # of these tokens, if they were asked for
    prompt_logprobs: Logprobs = ()  # of the prompt's tokens, from the second on
