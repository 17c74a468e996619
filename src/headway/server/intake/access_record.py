"""AccessRecord: what is learned about an HTTP request, for its line in the access log."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from headway.server.answering.call import Call


@dataclass(slots=True)
class AccessRecord:
    """One request's record. Each stage of the request fills in its part."""

    key: str = ""  # the key's name
    lane: str = ""
    model: str = ""  # the entry that answers; empty when there is only one
    code: str = ""  # of the error in the answer
    call: Call | None = None  # the call whose answer is sent
    calls: tuple[Call, ...] = ()  # all calls made, such as a route's attempts
    # Set only for an answer that bypasses the middleware: its status, and the request's id.
    status: int = 0
    id: str = ""
    sent: Callable[[], object] = lambda: None  # called when the last byte of the answer was sent


_RECORD: ContextVar[AccessRecord] = ContextVar("access_record")


def access_record() -> AccessRecord:
    """The record of the request that this task answers; outside a request, a throwaway record."""
    return _RECORD.get(None) or AccessRecord()


class recording:
    """A context manager around one request. It yields a new record, which access_record() returns
    within the block."""

    __slots__ = ("_token",)

    def __enter__(self) -> AccessRecord:
        record = AccessRecord()
        self._token = _RECORD.set(record)
        return record

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _RECORD.reset(self._token)


class recorded:
    """A context manager that yields this task's current record, or a new one for the block if
    there is none."""

    __slots__ = ("_made",)

    def __enter__(self) -> AccessRecord:
        self._made: recording | None = None
        if record := _RECORD.get(None):
            return record
        self._made = recording()
        return self._made.__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._made:
            self._made.__exit__(kind, error, trace)
