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
    """The door has refused this request. It is a command so that it is in the books and the
    journal; nobody is told again."""

    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    """The caller wants no more of it."""

    id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The caller has found the end in the text: keep this many generated tokens."""

    id: str
    keep: int


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing more will be added. It is a command so that a replay sees it at the same step."""


@dataclass(frozen=True, slots=True)
class Enough:
    """Nothing more comes for now, so a group that is not full need not wait. Ends with an Add."""


@dataclass(frozen=True, slots=True)
class Retune:
    """Another strategy and other lanes' budgets, shares and limits, between two steps.

    Nobody ends for it. While a group runs it is put off: the group ends under the rule it began
    with. What may differ from the settings in force is checked by `Settings.retuned`, before this
    is sent.
    """

    version: int  # the configuration's number, from 1
    policies: Policies
    lanes: tuple[Lane, ...]  # of the same names as those in force


Command = Add | Refuse | Cancel | Stop | Close | Enough | Retune
