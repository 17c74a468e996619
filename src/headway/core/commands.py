"""What the engine is told, in one order: add, refuse, cancel, stop, close, enough, retune."""

from dataclasses import dataclass

from headway.core.lane import Lane
from headway.core.policies.policies import Policies
from headway.core.request import Request


@dataclass(frozen=True, slots=True)
class Add:
    """A new request."""

    request: Request


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request that admission refused. As a command it reaches the ledger and the journal; the
    caller is not told again."""

    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    """The caller wants no more of this request."""

    id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The caller found the end of the answer in its text: keep this many generated tokens."""

    id: str
    keep: int


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing more will be added. It is a command so that a replay sees it at the same step."""


@dataclass(frozen=True, slots=True)
class Enough:
    """No request comes for now, so a partial group need not wait. The next accepted Add ends it."""


@dataclass(frozen=True, slots=True)
class Retune:
    """Another strategy and new budgets, shares and limits of the lanes, between two steps.

    No request ends because of it. While a group runs the change waits: the group ends under the
    rule it began with. Before this is sent, `Settings.retuned` checks what may change.
    """

    version: int  # the configuration's number, from 1
    policies: Policies
    lanes: tuple[Lane, ...]  # of the same names as those in force


Command = Add | Refuse | Cancel | Stop | Close | Enough | Retune
