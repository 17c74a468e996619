"""Upload: a multipart form whose file is stored in parts while it arrives."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from sqlalchemy import Connection
from starlette.requests import Request

from headway.core.request import NEVER
from headway.server.config.durations import SECOND
from headway.server.http.exchange import EXCHANGE
from headway.server.jobs.store import JobStore
from headway.server.protocol.problem import Problem, wrong
from headway.store.files import StoredFile

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

PART = 256 << 10  # bytes of a stored part; downloads and the Validator read one part at a time
FIELD = 4_096  # bytes of a field other than the file
FIELDS = 16
PURPOSE = "batch"
LEAST_AGE, MOST_AGE = 3_600, 2_592_000  # seconds, as OpenAI has them
ANCHOR = "created_at"


class Upload:
    """One form. Two parts bound its memory, however large the file is. Each part may take as long
    as the whole body of another request."""

    def __init__(
        self,
        store: JobStore,
        tenant: str,
        most: int,
        stall: int,
        check: Callable[[Connection], None],
    ) -> None:
        """most: bytes of the file. stall: the longest pause in the upload, in nanoseconds. check:
        raises Problem if the tenant now holds too much, within the transaction that stores more."""
        self._check = check
        self._store, self._tenant, self._most = store, tenant, most
        self._stall = None if stall == NEVER else stall / SECOND
        self._fields: dict[str, str] = {}
        self._header = self._name = self._value = b""
        self._headers: dict[str, bytes] = {}
        self._field, self._filename = "", ""
        self._seen: set[str] = set()  # fields that have begun
        self._text = bytearray()
        self._held = bytearray()  # bytes of the file that are not stored yet
        self._size = self._number = 0
        self._is_over = False

    async def read(self, request: Request, keep: int) -> StoredFile:
        """Store the form's file. keep: seconds, unless the form gives some. Raises Problem."""
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        if kind != b"multipart/form-data" or b"boundary" not in options:
            raise Problem(415, "the content-type must be multipart/form-data with a boundary")
        try:
            parser = MultipartParser(options[b"boundary"], self._callbacks)
        except FormParserError as error:
            raise _unreadable(error) from error
        now = self._store.unix()
        id = await self._store.ask(self._store.files.begin, self._tenant, now, self._check)
        try:
            await self._receive(request, parser, id)
            file = self._file(id, now, keep)
            await self._store.ask(self._store.files.finish, file, self._check)
        except BaseException:
            await asyncio.shield(self._store.ask(self._store.files.delete, id))
            raise
        return file

    async def _receive(self, request: Request, parser: MultipartParser, id: str) -> None:
        pieces = request.stream()
        while piece := await self._next(pieces):
            try:
                parser.write(piece)
            except FormParserError as error:
                raise _unreadable(error) from error
            if self._size > self._most:
                raise Problem(
                    413, f"the file has more than {self._most} bytes", "file", "file_too_large"
                )
            while len(self._held) >= PART:
                await self._put(id)
                if exchange := request.scope.get("extensions", {}).get(EXCHANGE):
                    exchange.allow_more_time()
        if not self._is_over:
            raise wrong("the form is cut off")
        if self._held:
            await self._put(id)

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._stall):
                async for piece in pieces:
                    if piece:
                        return piece
        except TimeoutError:
            text = f"nothing of the file came for {self._stall:g} s"
            raise Problem(408, text, code="body_late") from None
        return b""

    async def _put(self, id: str) -> None:
        part = bytes(self._held[:PART])
        del self._held[:PART]
        await self._store.ask(self._store.files.append, id, self._number, part, self._check)
        self._number += 1

    def _file(self, id: str, now: int, keep: int) -> StoredFile:
        """The uploaded file, after a check of the form's fields. Raises Problem."""
        fields = self._fields
        if "file" not in self._seen:
            raise wrong("'file' is missing", "file", "missing_required_parameter")
        if (purpose := fields.get("purpose")) != PURPOSE:
            what = "is missing" if purpose is None else f"is {purpose[:50]!r}"
            raise wrong(f"'purpose' {what}; it must be '{PURPOSE}'", "purpose", "invalid_value")
        known = {"purpose", "expires_after[anchor]", "expires_after[seconds]"}
        if strange := fields.keys() - known:
            name = min(strange)[:100]
            raise wrong(f"'{name}' is not a known field", name, "unknown_parameter")
        anchor, seconds = (fields.get(f"expires_after[{each}]") for each in ("anchor", "seconds"))
        if seconds is not None or anchor is not None:
            if anchor != ANCHOR:
                name = "expires_after.anchor"
                raise wrong(f"'{name}' must be '{ANCHOR}'", name, "invalid_value")
            keep = checked_age(seconds)
        name = self._filename[:255] or "file"
        return StoredFile(id, self._tenant, PURPOSE, name, self._size, now, now + keep)

    # -- what the parser calls

    @property
    def _callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._whole,
        }

    def _begin(self) -> None:
        self._headers, self._name, self._value = {}, b"", b""
        self._text.clear()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.decode("latin-1").lower()] = self._value
        self._name, self._value = b"", b""

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", b""))
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        if self._field in self._seen or len(self._seen) >= FIELDS:
            raise wrong(f"'{self._field[:100]}' comes twice, or the form has too many fields")
        self._seen.add(self._field)
        if self._field == "file":
            name = options.get(b"filename", b"").decode("utf-8", "replace")
            self._filename = "".join(each for each in name if each.isprintable())

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._field == "file":
            self._held += data[start:end]
            self._size += end - start
            return
        self._text += data[start:end]
        if len(self._text) > FIELD:
            raise wrong(f"'{self._field[:100]}' has more than {FIELD} bytes", self._field[:100])

    def _end(self) -> None:
        if self._field != "file":
            self._fields[self._field] = self._text.decode("utf-8", "replace")

    def _whole(self) -> None:
        self._is_over = True


def _unreadable(error: FormParserError) -> Problem:
    return wrong(f"the form cannot be read: {error}")


def checked_age(seconds: str | int | None) -> int:
    """The seconds of `expires_after`, checked. Raises Problem."""
    text = str(seconds)
    is_number = text.isascii() and text.isdecimal() and len(text) < 9
    if not (is_number and LEAST_AGE <= int(text) <= MOST_AGE):
        why = f"'expires_after.seconds' must be from {LEAST_AGE} to {MOST_AGE}"
        raise wrong(why, "expires_after.seconds", "invalid_value")
    return int(text)
