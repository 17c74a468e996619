"""What the engine is told, in one order: add, cancel, stop, close, enough."""

from dataclasses import dataclass

from headway.core.request import Request


@dataclass(frozen=True, slots=True)
class Add:
    """A new request."""

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


Command = Add | Cancel | Stop | Close | Enough
