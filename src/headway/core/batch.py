"""What crosses the seams: a Batch to the executor, its Output back, an Event to a caller.

Plain values: nothing here references a Sequence, and all of it pickles. Row and Event are named
tuples because one of each is made per token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import NamedTuple

from headway.core.grammar import ALL_BANNED, DEAD_END
from headway.core.request import NEVER, Finish, Pooling
from headway.core.sampling import Sampling

# Stands for the token that this sequence's row in the step before samples, while that step is still
# being computed. Only executors that take several steps at once (Traits) receive it.
UNKNOWN = -1


class Want(IntFlag):
    """What a row wants from the executor: nothing, or any of these."""

    NOTHING = 0
    LAST = 1  # a token sampled from the last position's logits
    PROMPT = 2  # at each position, the log-probability of the prompt's next token
    VECTOR = 4  # the pooled vector (Begun.pooling), with the last token of the prompt


class Row(NamedTuple):
    """One sequence's share of a step. In steady decoding it holds four ints."""

    sequence: int  # the sequence's number
    start: int  # position of the first token to compute
    tokens: tuple[int, ...] | range  # to compute; the last one may be UNKNOWN
    blocks: tuple[int, ...]  # added to its block table since its last row
    want: Want


class Begun(NamedTuple):
    """What the executor keeps for a sequence until the sequence ends."""

    sequence: int
    prompt: int  # its length: the token at position p is generated token p - prompt
    sampling: Sampling
    tokens: tuple[int, ...] = ()  # all known tokens, if the sampling or the executor reads them
    adapter: str = ""  # the LoRA adapter's name; empty: none
    pooling: str = Pooling.NONE  # how its vector is made, if it wants one


@dataclass(frozen=True, slots=True)
class Batch:
    """One step. The step of an exclusive group is a rectangle, and every cell is computed:

             |<----- width ----->|
    row      | tokens  | padding |      padding and held slots
    row      | tokens            |      write to scratch block 0
    held     | a finished slot   |
    """

    step: int = 0
    rows: tuple[Row, ...] = ()
    begun: tuple[Begun, ...] = ()  # sequences with their first row, or first since a preemption
    ended: tuple[int, ...] = ()  # sequences whose state the executor drops, before it reads begun
    held: int = 0  # slots of an exclusive group whose member has ended
    width: int = 0  # tokens that rows and held slots are padded to; 0: no padding
    wake_at: int = NEVER  # if there are no rows: when to ask again

    @property
    def tokens(self) -> int:
        """Tokens of the rows, without padding and held slots."""
        return sum([len(row.tokens) for row in self.rows])

    @property
    def padding(self) -> int:
        """Cells to the right of the rows' tokens."""
        return self.width * len(self.rows) - self.tokens if self.width else 0

    @property
    def waste(self) -> int:
        """Cells of the rectangle that are computed for no request: padding and held slots."""
        return self.padding + self.width * self.held


class Logprob(NamedTuple):
    """Natural logarithms of probabilities, before temperature and filters."""

    sampled: float  # of the sampled token
    top: tuple[tuple[int, float], ...] = ()  # the most likely tokens, the likeliest first


Logprobs = Sequence[Logprob]  # of a prompt's tokens; an executor may store it in columns


@dataclass(frozen=True, slots=True)
class Output:
    """What the executor computed for a batch."""

    tokens: tuple[tuple[int, ...], ...] = ()  # per row: 0 to k + 1 tokens, if k were drafted
    logprobs: Mapping[int, tuple[Logprob, ...]] = field(default_factory=dict)  # by row, if it asked
    errors: Mapping[int, str] = field(default_factory=dict)  # by row
    prompt_logprobs: Mapping[int, Logprobs] = field(default_factory=dict)
    host: int = 0  # nanoseconds in which the device waited for inputs or sampling
    vectors: Mapping[int, bytes] = field(default_factory=dict)  # by row: float32, little-endian
    took: int = 0  # nanoseconds of the computation alone; 0: the executor does not measure it


def finish_of(error: str) -> Finish:
    """How a row with this error ends: UNSATISFIABLE if its own request is the cause, else ERROR."""
    own = error.startswith((ALL_BANNED, DEAD_END))
    return Finish.UNSATISFIABLE if own else Finish.ERROR


class Event(NamedTuple):
    """News of a request: new tokens, its end, or both; its relegation; or its promise."""

    id: str
    tokens: tuple[int, ...] = ()
    finish: Finish = Finish.NOT_YET
    error: str = ""
    logprobs: tuple[Logprob, ...] = ()  # of these tokens, if asked for
    prompt_logprobs: Logprobs = ()  # of the prompt's tokens, from the second on
    relegated: bool = False  # it is expected to miss its budget: told by an event of its own
    # The promised times of its first token and of its end, on the engine's clock (Promise). Told
    # once, by an event of its own.
    promise: tuple[int, ...] = ()
    vector: bytes = b""  # the pooled vector of its prompt: float32, little-endian


def add_scores(events: list[Event], id: str, scores: Logprobs) -> None:
    """Add a prompt's log-probabilities to its row's event, or as an event of their own."""
    if events and events[-1].id == id:
        events[-1] = events[-1]._replace(prompt_logprobs=scores)
    elif scores:
        events.append(Event(id, prompt_logprobs=scores))
