"""A journal on disk (JournalFile): one file, or a series of parts.

If a record cannot be written, the journal ends and the engine goes on. The reason is logged, and
the records written so far can be replayed.
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from headway.core.settings import Settings
from headway.errors import JournalError
from headway.journal import origin
from headway.journal.journal import head, head_of_part, line_of, line_to_next
from headway.journal.record import Record

LOG = logging.getLogger("headway.journal")
TWINS = 100  # most journals with the same stamp in their names


class JournalFile:
    """A journal on disk. Each record is written unbuffered, so a killed run loses only its last.

    Only the owner may read the file, because it holds prompts and answers as token ids. One thread
    at a time may use it.
    """

    def __init__(
        self, path: Path, settings: Settings, about: Mapping[str, Any], part_bytes: int = 0
    ) -> None:
        """about: the run, as JSON. part_bytes: the size at which a new part begins; 0: there is
        only one part. Raises JournalError if the file exists or cannot be created."""
        self.fault = ""  # why writing has stopped; empty: it has not
        self._first, self._number, self._part_bytes = path, 1, part_bytes
        try:
            self._part = Part(path, head(settings, {**about, **origin.own()}))
        except OSError as error:
            raise _refused(path, error) from error

    @property
    def name(self) -> str:
        """The name of the journal's first file."""
        return self._first.name

    def keep(self, record: Record) -> None:
        """Write a record; after a fault, do nothing."""
        if self.fault:
            return
        try:
            line = line_of(record)
        except (TypeError, ValueError) as error:  # a value that JSON cannot represent
            return self._stop(str(error))
        try:
            self._part.add(line)
            if 0 < self._part_bytes <= self._part.size:
                self._begin_next_part()
        except OSError as error:
            self._stop(error.strerror or str(error))

    def _stop(self, fault: str) -> None:
        self.fault = fault
        self._part.close()
        LOG.error(
            "the journal %s has stopped: %s. What is in it can be replayed; the engine goes on",
            self.name,
            self.fault,
        )

    def _begin_next_part(self) -> None:
        """Create the next part, then name it in this one, so that each named part exists."""
        number = self._number + 1
        path = self._first.with_name(f"{self._first.stem}.{number}{self._first.suffix}")
        part = Part(path, head_of_part(number, self.name))
        try:
            self._part.add(line_to_next(path.name))
        except OSError:
            part.remove()
            raise
        self._part.close()
        self._part, self._number = part, number

    def close(self) -> None:
        """Close the part that is being written."""
        self._part.close()

    def __enter__(self) -> "JournalFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Part:
    """One new file with mode 0600. It ends with a whole line even if the disk was full."""

    def __init__(self, path: Path, head: str) -> None:
        """Raises OSError, and leaves no new file, if the file exists or the head cannot be
        written."""
        self.path, self.size = path, 0
        self._file = FileIO(path, "x", opener=_private)
        try:
            self.add(head)
        except OSError:
            self.remove()
            raise

    def add(self, line: str) -> None:
        """Write the whole line. If that fails, write nothing and raise OSError."""
        data = memoryview(line.encode())
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            with suppress(OSError):  # otherwise a replay skips the cut-off last line
                self._file.truncate(self.size)
            raise
        self.size += len(line)  # the line is ASCII

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def remove(self) -> None:
        """Close the file and delete it. A file that cannot be deleted stays."""
        self.close()
        with suppress(OSError):
            self.path.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def begun(
    path: Path, stamp: str, settings: Settings, about: Mapping[str, Any], part_bytes: int
) -> JournalFile:
    """Begin a journal in the folder of `path`, with the stamp in its name. JournalError if that
    fails."""
    for twin in range(1, TWINS + 1):
        of = stamp if twin == 1 else f"{stamp}-{twin}"
        try:
            named = path.with_name(f"{path.stem}-{of}{path.suffix}")
            return JournalFile(named, settings, about, part_bytes)
        except JournalError as error:
            if twin == TWINS or not isinstance(error.__cause__, FileExistsError):
                raise
    raise AssertionError("the last twin is returned, or raises")


def check(path: Path, *, new: bool) -> None:
    """Raise JournalError if no journal can be created here. Called before a model is loaded.

    new: the journal is this file itself. Otherwise journals with stamps in their names are created
    in its folder.
    """
    try:
        problem = _problem(path)
    except OSError as error:  # such as a folder above it that this user may not enter
        raise _refused(path, error) from error
    if problem:
        raise JournalError(f"the journal {path} cannot be written: {problem}")
    if new and os.path.lexists(path):
        raise _refused(path, FileExistsError())


def _problem(path: Path) -> str:
    """Why no journal can be created here; empty: it can. Raises OSError."""
    if not path.name or path.is_dir():
        return "it is a folder"
    if not path.parent.exists():
        return "there is no such folder"
    if not path.parent.is_dir():
        return f"{path.parent.name} is not a folder"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "its folder cannot be written to"
    return ""


def _refused(path: Path, error: OSError) -> JournalError:
    if isinstance(error, FileExistsError):
        return JournalError(
            f"{path.name} is there already, perhaps the journal of a run that went wrong: "
            "name another file, or remove that one"
        )
    return JournalError(f"the journal {path.name} cannot be written: {error.strerror}")
