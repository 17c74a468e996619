"""Write and read a journal's lines: what the engine took in and did, enough to replay it.

Each line is JSON. The first line holds the settings and what is known about the run. Each later
line is one turn of the engine's loop: [step, now, commands, collected, tokens, errors,
nanoseconds, host, digest]. The digest covers the step's rows, so a replay can check that it has
built the same rows. Log-probabilities are not kept, because no decision depends on them.

A long journal is a series of files, its parts. Each part but the last ends with a line that names
the next one: {"next": NAME}. A later part begins with its number and the name of the first part. A
replay starts at the first part, because each step depends on all the steps before it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from headway import __version__
from headway.core.commands import Add, Command, Refuse
from headway.core.sampling import TOKENS
from headway.core.settings import Settings
from headway.errors import JournalError
from headway.journal import codec, origin
from headway.journal.record import Record

VERSION = 10


def begin(settings: Settings, file: TextIO, about: Mapping[str, Any] | None = None) -> None:
    """Write a journal's first line. about: the run, as JSON: model, dtype, device."""
    file.write(head(settings, about or {}))


def write(record: Record, file: TextIO) -> None:
    """Write one record."""
    file.write(line_of(record))


def head(settings: Settings, about: Mapping[str, Any]) -> str:
    """A journal's first line."""
    return codec.line({"headway_journal": VERSION, "settings": settings, "about": dict(about)})


def line_of(record: Record) -> str:
    """The line of a record."""
    rest = record.nanoseconds, record.host, record.digest
    content = record.commands, record.collected, record.tokens, record.errors
    return codec.line([record.step, record.now, *content, *rest])


def head_of_part(number: int, first: str) -> str:
    """The first line of a later part. first: the file name of the series' first part."""
    return codec.line({"headway_journal": VERSION, "part": number, "first": first})


def line_to_next(name: str) -> str:
    """The last line of a part. name: the file name of the next part."""
    return codec.line({"next": name})


def next_part(line: str) -> str:
    """The file name of the next part if this line names it, else an empty string."""
    try:
        match json.loads(line):
            case {"next": str(name)}:
                return name
    except ValueError:  # reading the line as a record reports the error
        pass
    return ""


def read(lines: Iterable[str]) -> tuple[Settings, Iterator[Record]]:
    """Read a journal: its settings, and an iterator of records. JournalError names a bad line."""
    numbered = iter(enumerate(lines, start=1))
    head = _head(next(numbered, (1, ""))[1])
    try:
        settings = codec.decode(head.get("settings"), 1)
    except (TypeError, KeyError, AttributeError) as error:
        raise JournalError(f"line 1 holds no settings: {error!r}") from error
    if not isinstance(settings, Settings):
        raise JournalError("line 1 holds no settings")
    return settings, (_record(number, line) for number, line in numbered)


def read_part(lines: Iterable[str], number: int) -> Iterator[Record]:
    """Read the records of a later part. JournalError if the part does not have this number."""
    numbered = iter(enumerate(lines, start=1))
    if (found := _any_head(next(numbered, (1, ""))[1]).get("part", 1)) != number:
        raise JournalError(f"this is part {found} of a journal, and part {number} comes here")
    return (_record(number, line) for number, line in numbered)


def about(line: str) -> dict[str, Any]:
    """What a journal's first line says about the run; empty if it says nothing."""
    facts = _head(line).get("about", {})
    if not isinstance(facts, dict):
        raise JournalError("line 1 says nothing that can be understood about the run")
    return facts


def _head(line: str) -> dict[str, Any]:
    head = _any_head(line)
    if "part" in head:
        first = head.get("first")
        raise JournalError(f"this is part {head['part']} of a journal: replay its first, {first}")
    return head


def _any_head(line: str) -> dict[str, Any]:
    head = _parse(1, line)
    if not isinstance(head, dict) or "headway_journal" not in head:
        raise JournalError("line 1 is not the head of a journal")
    if (version := head["headway_journal"]) != VERSION:
        wrote = head.get("about")
        who = origin.other(wrote) if isinstance(wrote, dict) else ""
        raise JournalError(
            f"this is a journal of version {version!r}; headway {__version__} reads "
            f"version {VERSION}: {who or 'replay it with the headway that wrote it'}"
        )
    return head


def _record(number: int, line: str) -> Record:
    parsed = _parse(number, line)
    try:
        step, now, commands, collected, tokens, errors, nanoseconds, host, digest = parsed
        record = Record(
            step,
            now,
            tuple([codec.decode(command, number) for command in commands]),
            collected,
            tuple([tuple(row) for row in tokens]),
            {int(row): str(error) for row, error in errors.items()},
            nanoseconds,
            host,
            digest,
        )
        _check(record)
        return record
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise JournalError(f"line {number} is not a step's record: {error}") from error


def _check(record: Record) -> None:
    """Raise TypeError or ValueError for an invalid record. The reader adds the line's number."""
    steps, times = (record.step, record.collected), (record.now, record.nanoseconds, record.host)
    numbers = *steps, *times, record.digest
    if not all(isinstance(each, int) for row in (numbers, *record.tokens) for each in row):
        raise TypeError("a number is not a whole one")
    if min(numbers) < 0:
        raise ValueError("a number is below 0")
    for command in record.commands:
        if not isinstance(command, Command):
            raise TypeError("a command is none")
        codec.check_types(command)
    prompts = [each.request.prompt for each in record.commands if isinstance(each, Add | Refuse)]
    if not all(min(row) >= 0 and max(row) < TOKENS for row in (*record.tokens, *prompts) if row):
        raise ValueError(f"a token is not from 0 to {TOKENS - 1}")


def _parse(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise JournalError(f"line {number} is not JSON; was the run cut off there?") from error
