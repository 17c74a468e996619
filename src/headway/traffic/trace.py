"""Recorded traffic: arrival times and token counts from published trace files."""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from headway.errors import SettingError

GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PREFIX_COLUMN = "prefix_block_ids"  # of CSV: ids as Mooncake has them, separated by spaces
PREFIX_TOKENS = 512  # prompt tokens that one such id stands for
SUPERSEDE = "supersede"  # of every format: the request's X-Headway-Supersede header


@dataclass(frozen=True, slots=True)
class Arrival:
    """One recorded request: its time and its lengths."""

    at: int  # nanoseconds from the beginning of the trace
    prompt: int  # tokens
    answer: int  # tokens
    blocks: tuple[int, ...] = ()  # ids of the prompt's blocks of PREFIX_TOKENS, where recorded
    supersede: str = ""  # key; a later request with the same key supersedes this one; empty: none


def _number(field: object, column: str, where: str) -> float:
    try:
        number = float(field)  # type: ignore[arg-type]  # float() refuses what it cannot take
    except (TypeError, ValueError):
        raise SettingError(f"{where}: {column} is {field!r}, not a number") from None
    except OverflowError:  # a whole number of more than 308 digits
        raise SettingError(f"{where}: {column} has too many digits") from None
    if not 0 <= number < 1e15:  # NaN fails as well
        raise SettingError(f"{where}: {column} is {field}; it must be 0 or more and finite")
    return number


def _whole(field: object, column: str, where: str) -> int:
    number = _number(field, column, where)
    if number != int(number):
        raise SettingError(f"{where}: {column} is {field}; tokens are counted in whole numbers")
    return int(number)


def _seconds(field: object, column: str, where: str) -> int:
    return round(_number(field, column, where) * 1e9)


def _milliseconds(field: object, column: str, where: str) -> int:
    return round(_number(field, column, where) * 1e6)


def _date(field: object, column: str, where: str) -> int:
    """A date in nanoseconds since EPOCH. Without an offset, the date is in UTC.

    Azure writes seven decimals of a second, but Python reads only six.
    """
    text, dot, rest = str(field).partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        when = datetime.fromisoformat(text + dot + digits[:6] + rest[len(digits) :])
    except ValueError:
        raise SettingError(f"{where}: {column} is {field!r}, not a date and a time") from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - EPOCH) // timedelta(microseconds=1) * 1_000


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of traces: the names of its columns, and how it writes times."""

    name: str
    at: str
    prompt: str
    answer: str
    time: Callable[[object, str, str], int]
    from_first: bool  # times count from the first arrival instead of the file's zero

    @property
    def columns(self) -> tuple[str, str, str]:
        return self.at, self.prompt, self.answer


CSV_FORMATS = (
    TraceFormat("headway", "arrival_s", "input_tokens", "output_tokens", _seconds, False),
    TraceFormat("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", _date, True),
    TraceFormat("BurstGPT", "Timestamp", "Request tokens", "Response tokens", _seconds, True),
)
MOONCAKE = TraceFormat(
    "Mooncake", "timestamp", "input_length", "output_length", _milliseconds, True
)


def read_trace(path: Path | Traversable) -> list[Arrival]:
    """Read the arrivals of a trace, in order. The file may be gzipped. Its first line tells the
    format.

    CSV: with a header and the columns `arrival_s`, `input_tokens`, `output_tokens` (and perhaps
    `prefix_block_ids`), or as Azure and BurstGPT publish it. JSON lines: as Mooncake publishes
    them. Each format may have `supersede`; other columns are ignored. SettingError names the file
    and, if it can, the line.
    """
    try:
        with _opened(path) as file:
            return list(parse(file, path.name))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingError(f"the trace {path.name} cannot be read: {why}") from error


@cache
def read_shipped_trace(name: str) -> tuple[Arrival, ...]:
    """Read a trace that ships with the package: `azure2023-code` or `azure2023-conv`. It is parsed
    once."""
    return tuple(read_trace(files("headway") / "data" / "traces" / f"{name}.csv.gz"))


def parse(lines: Iterable[str], name: str) -> Iterator[Arrival]:
    """Yield the checked rows of any format, with times from the beginning of the trace."""
    source = iter(lines)
    first = next(source, "")
    is_json = first.lstrip().startswith("{")
    form, rows = (_json if is_json else _csv)(first, source, name)
    before, zero = None, 0
    for where, fields in rows:
        at = form.time(fields[0], form.at, where)
        if before is None:  # dates before 1970 are below 0
            zero = at if form.from_first else 0
        elif at < before:
            raise SettingError(f"{where}: it arrives before the line above it; sort by {form.at}")
        before = at
        prompt, answer = (
            _whole(field, column, where)
            for field, column in zip(fields[1:3], form.columns[1:], strict=True)
        )
        yield Arrival(at - zero, prompt, answer, _blocks(fields[3], where), _key(fields[4], where))


# File and line; then time, prompt, answer, block ids, supersede key.
Rows = Iterator[tuple[str, list[object]]]


def _csv(first: str, rest: Iterable[str], name: str) -> tuple[TraceFormat, Rows]:
    header = [column.strip() for column in next(csv.reader([first]), [])]
    form = max(CSV_FORMATS, key=lambda form: sum(column in header for column in form.columns))
    if missing := [column for column in form.columns if column not in header]:
        raise SettingError(f"{name}, line 1: there is no column {', '.join(missing)}")
    return form, _csv_rows(header, form, rest, name)


def _csv_rows(header: list[str], form: TraceFormat, lines: Iterable[str], name: str) -> Rows:
    rows = csv.reader(lines)
    places = [header.index(column) for column in form.columns]
    prefix, key = (
        header.index(name) if name in header else -1 for name in (PREFIX_COLUMN, SUPERSEDE)
    )
    for row in rows:
        if not row:  # an empty line
            continue
        where = f"{name}, line {rows.line_num + 1}"
        if len(row) < len(header):
            raise SettingError(f"{where}: {len(row)} fields where the header names {len(header)}")
        ids = row[prefix].split() if prefix >= 0 else ()
        yield where, [*(row[place] for place in places), ids, row[key] if key >= 0 else ""]


def _json(first: str, rest: Iterable[str], name: str) -> tuple[TraceFormat, Rows]:
    return MOONCAKE, _json_rows(first, rest, name)


def _json_rows(first: str, rest: Iterable[str], name: str) -> Rows:
    for number, line in enumerate((first, *rest), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SettingError(f"{where}: it is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise SettingError(f"{where}: it is not a JSON object")
        if missing := [column for column in MOONCAKE.columns if column not in row]:
            raise SettingError(f"{where}: there is no {', '.join(missing)}")
        more = row.get("hash_ids", ()), row.get(SUPERSEDE, "")
        yield where, [*(row[column] for column in MOONCAKE.columns), *more]


def _blocks(ids: object, where: str) -> tuple[int, ...]:
    if not isinstance(ids, (list, tuple)):
        raise SettingError(f"{where}: the ids of its prefix blocks are no list")
    return tuple(_whole(each, "a prefix block's id", where) for each in ids)


def _key(field: object, where: str) -> str:
    if field is None:  # JSON's null
        return ""
    if not isinstance(field, str):
        raise SettingError(f"{where}: {SUPERSEDE} is {field!r}, not a text")
    return field.strip()


@contextmanager
def _opened(path: Path | Traversable) -> Iterator[TextIO]:
    with path.open("rb") as raw:
        begins = raw.read(len(GZIP))
        raw.seek(0)
        if begins == GZIP:
            with gzip.open(raw, "rt", encoding="utf-8-sig", newline="") as text:
                assert isinstance(text, TextIOWrapper)
                yield text
        else:
            yield TextIOWrapper(raw, encoding="utf-8-sig", newline="")
