"""What is learned of an HTTP request while it is answered, for its line in the access log."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from headway.server.answering.call import Call


@dataclass(slots=True)
class AccessRecord:
    """Filled in on the way, as far as the request comes."""

    key: str = ""  # its name
    lane: str = ""
    model: str = ""  # the entry that answers; empty where there is only one
    code: str = ""  # of the error that it was answered with
    call: Call | None = None  # whose answer is sent
    calls: tuple[Call, ...] = ()  # all that were made, as for a route's attempts
    # Of an answer that went past the middleware: its status, and the request's id.
    status: int = 0
    id: str = ""
    sent: Callable[[], object] = lambda: None  # told that the last byte of the answer has gone


_RECORD: ContextVar[AccessRecord] = ContextVar("access_record")


def access_record() -> AccessRecord:
    """Of the request that this task answers; outside of one a record that nobody reads."""
    return _RECORD.get(None) or AccessRecord()


class recording:
    """A context manager, while one request is answered: gives its record, which access_record()
    returns meanwhile."""

    __slots__ = ("_token",)

    def __enter__(self) -> AccessRecord:
        record = AccessRecord()
        self._token = _RECORD.set(record)
        return record

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _RECORD.reset(self._token)


class recorded:
    """A context manager: gives the record of the request that this task answers; one for the block,
    if there is none."""

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
