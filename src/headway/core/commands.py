"""What the engine is told, in one order: add, cancel, stop, close, enough."""

from dataclasses import dataclass

from headway.core.request import Request


@dataclass(frozen=True, slots=True)
class Add:
    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The caller has seen the end in the text: keep this many generated tokens."""

    id: str
    keep: int


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing more will be added. A command, so that a replay sees it at the same step."""


@dataclass(frozen=True, slots=True)
class Enough:
    """Nothing more comes until the next Add: a group that is not full need not wait for more."""


Command = Add | Cancel | Stop | Close | Enough
