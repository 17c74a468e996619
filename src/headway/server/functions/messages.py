"""What is asked of a function, and what is said of it: also between its process and the server.

front  -- Ask, Cancel, Look, ShowPage, Close ---------------------------------->  its process
       <-- Progress*, then About or Failed, then lists of Answer, Refused, Seen, PagePart and,
           where a ledger is kept, Measured and ItemsTold --
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from headway.core.lane import Lane
from headway.core.ledger import StepRow
from headway.core.load import Load
from headway.server.dashboard.view import ModelView
from headway.server.functions.ledger.item_accounts import ItemRow
from headway.server.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """How the process of a function is to be made."""

    target: str  # module:name
    name: str  # as clients know it
    lanes: tuple[Lane, ...]  # the server's; they replace the function's own
    tells_rows: bool = False  # whether a ledger is kept


@dataclass(frozen=True, slots=True)
class About:
    """What a function is. It pickles without the function's own types."""

    name: str
    summary: str  # the first line of what it says of itself
    streams: bool
    size: int  # items of a call, at most
    item: Mapping[str, Any] = field(default_factory=dict)  # JSON schema
    result: Mapping[str, Any] = field(default_factory=dict)  # of a stream, its pieces'
    models: Mapping[str, Any] = field(default_factory=dict)  # the schemas that those refer to
    notes: tuple[str, ...] = ()  # what an operator should know


class Wishes(NamedTuple):
    """Where and until when an item waits."""

    lane: str  # empty: the first
    deadline: float = 0.0  # seconds after which nobody wants its result; 0: none


class Ask(NamedTuple):
    """One HTTP request."""

    body: bytes
    kind: str  # of the body, its content type
    accept: str  # of the answer
    wishes: Wishes
    most: int = 0  # items of a list; 0: the body is one item
    id: int = 0


class Cancel(NamedTuple):
    """Nobody waits for the answer any more."""

    id: int


class Look(NamedTuple):
    """Asks for Seen."""

    id: int


class ShowPage(NamedTuple):
    """Asks for a PagePart."""

    now: int  # nanoseconds of the machine's monotonic clock
    id: int = 0


class Close(NamedTuple):
    """All have been answered: end."""


class Answer(NamedTuple):
    """The body of an answer, or an event of a stream, which goes on after it."""

    id: int
    body: bytes
    is_last: bool = True


class Refused(NamedTuple):
    """A Problem: it does not pickle."""

    id: int
    status: int
    message: str
    param: str
    code: str
    retry: float
    final: bool

    @classmethod
    def of(cls, id: int, problem: Problem) -> "Refused":
        told = problem.status, str(problem), problem.param, problem.code
        return cls(id, *told, problem.retry, problem.final)

    @property
    def problem(self) -> Problem:
        return Problem(*self[1:])


class Seen(NamedTuple):
    """How it is now."""

    id: int
    families: list[Metric]
    waiting: dict[str, int]  # items, by lane


class Measured(NamedTuple):
    """What calls of the function took."""

    steps: list[StepRow]
    load: Load  # after them


class ItemsTold(NamedTuple):
    """What became of the items of a request. It comes once, also after it was cancelled."""

    id: int
    items: Sequence[ItemRow]


class PagePart(NamedTuple):
    """What the live page shows of it, with all of its lanes."""

    id: int
    view: ModelView
