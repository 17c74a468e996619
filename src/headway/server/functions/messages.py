"""Requests to a function and messages about it, also between its process and the server.

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
    """How to make the process of a function."""

    target: str  # module:name
    name: str  # as clients know it
    lanes: tuple[Lane, ...]  # the server's; they replace the function's own
    tells_rows: bool = False  # whether a ledger is kept


@dataclass(frozen=True, slots=True)
class About:
    """What a function is. It pickles without the function's own types."""

    name: str
    summary: str  # the first line of its docstring
    streams: bool
    size: int  # items of a call, at most
    item: Mapping[str, Any] = field(default_factory=dict)  # JSON schema
    result: Mapping[str, Any] = field(default_factory=dict)  # JSON schema; of a stream, its pieces'
    models: Mapping[str, Any] = field(default_factory=dict)  # schemas that these two refer to
    notes: tuple[str, ...] = ()  # what an operator should know


class Wishes(NamedTuple):
    """Where an item waits, and for how long."""

    lane: str  # empty: the first
    deadline: float = 0.0  # seconds after which its result is of no use; 0: none


class Ask(NamedTuple):
    """One HTTP request."""

    body: bytes
    kind: str  # of the body, its content type
    accept: str  # of the answer
    wishes: Wishes
    most: int = 0  # items of a list; 0: the body is one item
    id: int = 0


class Cancel(NamedTuple):
    """Cancels a request: its caller has left."""

    id: int


class Look(NamedTuple):
    """Asks for Seen."""

    id: int


class ShowPage(NamedTuple):
    """Asks for a PagePart."""

    now: int  # nanoseconds of the machine's monotonic clock
    id: int = 0


class Close(NamedTuple):
    """Ends the process: all requests have been answered."""


class Answer(NamedTuple):
    """The body of an answer, or an event of a stream. The stream goes on unless `is_last`."""

    id: int
    body: bytes
    is_last: bool = True


class Refused(NamedTuple):
    """A Problem in a form that pickles."""

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
    """The state of the function now."""

    id: int
    families: list[Metric]
    waiting: dict[str, int]  # items, by lane


class Measured(NamedTuple):
    """What calls of the function took."""

    steps: list[StepRow]
    load: Load  # after them


class ItemsTold(NamedTuple):
    """What became of a request's items. It comes once, even if the request was cancelled."""

    id: int
    items: Sequence[ItemRow]


class PagePart(NamedTuple):
    """What the live page shows of a function, with all of its lanes."""

    id: int
    view: ModelView
