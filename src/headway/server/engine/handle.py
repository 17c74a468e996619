"""EngineHandle: what the server needs from an engine, in whichever process it runs."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from headway.core.accounts.stages import RequestStages
from headway.core.batch import Event
from headway.core.commands import Retune
from headway.core.ledger import RequestRow, SizeChange, StepRow
from headway.core.load import Load
from headway.core.request import Request
from headway.live.callers import Caller

Rows = Callable[[list[StepRow], list[RequestRow]], object]
Resized = Callable[[Sequence[SizeChange]], object]
Staged = Callable[[Sequence[RequestStages]], object]


class EngineState(StrEnum):
    """The state of the engine, as the server sees it."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DOWN = "down"


class Backend(Protocol):
    """An engine or a function that answers requests in a process of its own."""

    @property
    def state(self) -> EngineState: ...

    @property
    def down(self) -> str:
        """Why the backend is down or being restarted; empty if it is neither."""
        ...


class FunctionBackend(Backend, Protocol):
    """A function in a process of its own."""

    @property
    def was_ready(self) -> bool:
        """Whether the function has been loaded once. Its process may have gone down since."""
        ...


class EngineHandle(Backend, Protocol):
    """An engine to submit requests to. All calls happen on the event loop's thread."""

    rows: Rows  # called with the ledger's rows, before the step's events
    staged: Staged  # called before `rows`, with the time that each request spent in each stage
    events: Callable[[list[Event]], object]  # called with the step's events, before its callers

    @property
    def load(self) -> Load: ...

    @property
    def journal(self) -> str:
        """Why the journal has stopped; empty if it has not, or if there is no journal."""
        ...

    def submit(
        self, requests: Iterable[Request], caller: Caller, instead: Iterable[Request] = ()
    ) -> None:
        """Submit all of the requests, or raise RefusedError or EngineDownError and submit none.

        instead: requests cancelled just before. The new requests may take their places in line.
        """
        ...

    def cancel(self, ids: Iterable[str]) -> None:
        """Ask the engine to cancel the requests with these ids."""
        ...

    def stop(self, id: str, keep: int) -> None: ...

    def retune(self, retune: Retune) -> None:
        """Put another strategy and other lanes in force; they have been checked. The engine takes
        in earlier commands first. `load.version` shows when the new ones are in force."""
        ...
