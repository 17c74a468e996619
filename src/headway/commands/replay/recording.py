"""A journal from disk: also one whose run was killed in the middle of a line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core.settings import Settings
from headway.errors import JournalError
from headway.journal import journal
from headway.journal.record import Record

# Of a comparison's run: until when arrivals are not counted, and when its first request arrives,
# in nanoseconds from its beginning.
WARM_UP_NS, FIRST_NS = "warm_up_ns", "first_arrival_ns"


@dataclass(frozen=True, slots=True)
class Recording:
    name: str  # of the file
    about: Mapping[str, Any]  # what its head says of the run; empty: nothing
    settings: Settings
    records: tuple[Record, ...]
    cut: bool  # its last line was cut off, and is left out

    @property
    def warm_up(self) -> int:
        """Nanoseconds from the run's beginning; 0: all that arrived counts."""
        return self._nanoseconds(WARM_UP_NS)

    @property
    def first_arrival(self) -> int:
        """Nanoseconds from the run's beginning, where that is known; else 0."""
        return self._nanoseconds(FIRST_NS)

    def _nanoseconds(self, key: str) -> int:
        value = self.about.get(key, 0)
        if type(value) is not int or value < 0:
            raise JournalError(f"{self.name}: {key} is {value!r}, not nanoseconds")
        return value


def load(path: Path) -> Recording:
    """Of its first file and all that follow it. JournalError if it is none, with the file and line
    where it is damaged."""
    lines, cut = _lines(path, f"the journal {path.name}")
    name, number = _next(lines), 1
    with _naming(path.name):
        settings, records = journal.read(lines[:-1] if name else lines)
        about, made = journal.about(lines[0]), list(records)
    while name:
        number += 1
        part = path.parent / Path(name).name  # beside it, whatever the journal says
        lines, cut = _lines(part, f"{name}, where the journal {path.name} goes on,")
        name = _next(lines)
        with _naming(part.name):
            made += journal.read_part(lines[:-1] if name else lines, number)
    if not made:
        raise JournalError(f"{path.name} has a head and no whole record: nothing was served")
    return Recording(path.name, about, settings, tuple(made), cut)


@contextmanager
def _naming(file: str) -> Iterator[None]:
    try:
        yield
    except JournalError as error:
        raise JournalError(f"{file}: {error}") from error


def _lines(path: Path, called: str) -> tuple[list[str], bool]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise JournalError(f"{called} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JournalError(f"{path.name} is no journal: it is not even text") from error
    return _whole(text.split("\n"))


def _next(lines: list[str]) -> str:
    return journal.next_part(lines[-1]) if lines else ""


def _whole(lines: list[str]) -> tuple[list[str], bool]:
    """Its lines, and whether one was cut off: a whole one ends with a line feed."""
    *whole, last = lines
    if not last:
        return whole, False
    return (whole, True) if whole else (lines, False)  # the head: to be said why it is none
