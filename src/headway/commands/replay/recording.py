"""Read a journal from disk, even if it was cut off in the middle of a line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core.settings import Settings
from headway.errors import JournalError
from headway.journal import journal, origin
from headway.journal.record import Record

# Keys in the head of a comparison's journal: the end of the warm-up and the first arrival, in
# nanoseconds from the run's beginning.
WARM_UP_NS, FIRST_NS = "warm_up_ns", "first_arrival_ns"
NOTHING: Mapping[str, Any] = {}  # nothing is known about the run


@dataclass(frozen=True, slots=True)
class Recording:
    """A journal's head and records."""

    name: str  # the file's name
    about: Mapping[str, Any]  # what the head says about the run; may be empty
    settings: Settings
    records: tuple[Record, ...]
    cut: bool  # whether the last line was cut off; it is left out

    @property
    def warm_up(self) -> int:
        """The end of the warm-up, in nanoseconds from the run's beginning; 0: no warm-up."""
        return self._nanoseconds(WARM_UP_NS)

    @property
    def first_arrival(self) -> int:
        """The first arrival, in nanoseconds from the run's beginning; 0 if unknown."""
        return self._nanoseconds(FIRST_NS)

    def _nanoseconds(self, key: str) -> int:
        value = self.about.get(key, 0)
        if type(value) is not int or value < 0:
            raise JournalError(f"{self.name}: {key} is {value!r}, not nanoseconds")
        return value


def load(path: Path) -> Recording:
    """Read a journal: the first file and all files that continue it.

    Raises JournalError, with file and line, if it is not a journal or is damaged.
    """
    lines, cut = _lines(path, f"the journal {path.name}")
    name, number = _next(lines), 1
    with _naming(path.name):
        about = journal.about(lines[0] if lines else "")
    with _naming(path.name, about):
        settings, records = journal.read(lines[:-1] if name else lines)
        all_records = list(records)
    while name:
        number += 1
        part = path.parent / Path(name).name  # always in the first file's folder
        lines, cut = _lines(part, f"{name}, which continues the journal {path.name},")
        name = _next(lines)
        with _naming(part.name, about):
            all_records += journal.read_part(lines[:-1] if name else lines, number)
    if not all_records:
        raise JournalError(f"{path.name} has a head and no complete record: nothing was served")
    return Recording(path.name, about, settings, tuple(all_records), cut)


@contextmanager
def _naming(file: str, about: Mapping[str, Any] = NOTHING) -> Iterator[None]:
    """Add the file's name to errors, and the writer if it was another version of headway."""
    try:
        yield
    except JournalError as error:
        who = origin.other(about)
        raise JournalError(f"{file}: {error}{who and '; ' + who}") from error


def _lines(path: Path, called: str) -> tuple[list[str], bool]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise JournalError(f"{called} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JournalError(f"{path.name} is not a journal: it is not text") from error
    return _whole(text.split("\n"))


def _next(lines: list[str]) -> str:
    return journal.next_part(lines[-1]) if lines else ""


def _whole(lines: list[str]) -> tuple[list[str], bool]:
    """The complete lines (those that end with a line feed), and whether one was cut off."""
    *whole, last = lines
    if not last:
        return whole, False
    return (
        (whole, True) if whole else (lines, False)
    )  # there is only a broken head: the reader reports what is wrong with it
