"""What the front needs of an engine, whichever process it runs in."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol

from headway.core.batch import Event
from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.core.request import Request
from headway.live.callers import Caller

Rows = Callable[[list[StepRow], list[RequestRow]], object]


class EngineState(StrEnum):
    """Of the engine, as the front sees it."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DOWN = "down"


class EngineHandle(Protocol):
    """All of it on the event loop's thread."""

    rows: Rows  # called with the ledger's rows, before the events of the same step
    events: Callable[[list[Event]], object]  # called with those, before their callers hear of them

    @property
    def load(self) -> Load: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def down(self) -> str:
        """Why it is down, or is being started again; empty if neither is so."""
        ...

    @property
    def journal(self) -> str:
        """Why its journal has stopped; empty if it has not, or there is none."""
        ...

    def submit(
        self, requests: Iterable[Request], caller: Caller, instead: Iterable[Request] = ()
    ) -> None:
        """All of them or, with RefusedError or EngineDownError, none.

        instead: of those, which were cancelled just before and leave their places in line.
        """
        ...

    def cancel(self, ids: Iterable[str]) -> None: ...

    def stop(self, id: str, keep: int) -> None: ...
