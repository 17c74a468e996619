"""A journal from disk: also one whose run was killed in the middle of a line."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway import journal
from headway.core.settings import Settings
from headway.errors import JournalError
from headway.journal import Record


@dataclass(frozen=True, slots=True)
class Recording:
    name: str  # of the file
    about: Mapping[str, Any]  # what its head says of the run; empty: nothing
    settings: Settings
    records: tuple[Record, ...]
    cut: bool  # its last line was cut off, and is left out


def load(path: Path) -> Recording:
    """JournalError if it is none, with the line where it is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise JournalError(f"the journal {path.name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JournalError(f"{path.name} is no journal: it is not even text") from error
    lines, cut = _whole(text.split("\n"))
    try:
        settings, records = journal.read(lines)
        about = journal.about(lines[0])
        made = tuple(records)
    except JournalError as error:
        raise JournalError(f"{path.name}: {error}") from error
    if not made:
        raise JournalError(f"{path.name} has a head and no whole record: nothing was served")
    return Recording(path.name, about, settings, made, cut)


def _whole(lines: list[str]) -> tuple[list[str], bool]:
    """Its lines, and whether one was cut off: a whole one ends with a line feed."""
    *whole, last = lines
    if not last:
        return whole, False
    return (whole, True) if whole else (lines, False)  # the head: to be said why it is none
