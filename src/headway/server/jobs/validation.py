"""Read a batch's input file line by line, into items or into errors."""

import json
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from pydantic_core import from_json

from headway.store.ids import NUL
from headway.store.items.items import NewItem

MOST_ERRORS = 100
MOST_ID = 512  # characters of a custom_id
# A body must not become longer than it was in its line: a request's body has the same limit.
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
KNOWN = frozenset({"custom_id", "method", "url", "body"})


class LineError(Exception):
    """A line that is not a valid request of the batch. code, param: as OpenAI names them."""

    def __init__(self, code: str, message: str, param: str = "") -> None:
        super().__init__(message)
        self.code, self.param = code, param


@dataclass(slots=True)
class InputReader:
    """Reads a file that arrives in pieces.

    most: requests of a file. longest: bytes of a line. takes_objects: bodies must be JSON objects,
    as models need; a function's body may be any JSON.
    """

    endpoint: str
    most: int
    longest: int
    takes_objects: bool
    errors: list[dict[str, object]] = field(default_factory=list)
    model: str = ""  # the first one that a body names
    count: int = 0  # items so far
    is_over: bool = False  # no more is read: more than `most` requests, or another encoding
    _line: int = 0
    _rest: bytes = b""
    _seen: set[str] = field(default_factory=set)

    @property
    def has_failed(self) -> bool:
        """Whether reading on is pointless."""
        return self.is_over or len(self.errors) >= MOST_ERRORS

    def read(self, piece: bytes) -> list[NewItem]:
        """The items of the next piece. An empty piece marks the end of the file."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop() if piece else b""
        if len(self._rest) > self.longest:
            lines, self._rest = [*lines, self._rest], b""
        items = list(self._items(lines))
        if not piece and not self.count and not self.errors:
            self._fail(LineError("empty_file", "the file has no requests"), 0)
        return items

    def _items(self, lines: list[bytes]) -> Iterator[NewItem]:
        for raw in lines:
            self._line += 1
            if self.has_failed:
                return
            if self._line == 1:
                raw = raw.removeprefix(BOM_UTF8)
                if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                    why = "the file is in UTF-16: save it as UTF-8"
                    self._fail(LineError("invalid_json_line", why), self._line)
                    self.is_over = True
                    return
            if not raw.strip():
                continue
            try:
                item = self._item(raw)
            except LineError as error:
                self._fail(error, self._line)
                continue
            self.count += 1
            if self.count > self.most:
                why = f"the file has more than {self.most} requests"
                self._fail(LineError("too_many_requests", why), self._line)
                self.is_over = True
                return
            yield item

    def _item(self, raw: bytes) -> NewItem:
        if len(raw) > self.longest:
            raise LineError("line_too_long", f"the line has more than {self.longest} bytes")
        try:
            line = from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            why = str(error).replace(" at line 1 column ", " at column ")  # the file's is told
            raise LineError("invalid_json_line", f"the line is not JSON: {why}") from None
        if not isinstance(line, dict):
            raise LineError("invalid_json_line", "the line is no JSON object")
        self._check(line)
        body = line["body"]
        if self.takes_objects:
            if not isinstance(body, dict):
                raise LineError("invalid_body", "'body' must be a JSON object", "body")
            if body.get("stream"):
                raise LineError("invalid_body", "a batch has no streams", "body.stream")
            if not self.model and isinstance(model := body.get("model"), str):
                self.model = model[:200].replace(NUL, "")
        try:
            written = _COMPACT.encode(body).encode()
        except ValueError:  # a number such as 1e999 was read as infinity
            name = _infinite(body, "body")[:200]
            why = f"{name!r} is a number that is too large"
            raise LineError("invalid_body", why, name) from None
        custom_id = line["custom_id"]
        self._seen.add(custom_id)
        return NewItem(self._line, custom_id, written)

    def _check(self, line: dict[str, Any]) -> None:
        if strange := line.keys() - KNOWN:
            name = min(strange)[:100]
            raise LineError("unknown_field", f"{name!r} is not a known field", name)
        for name in sorted(KNOWN):
            if name not in line:
                raise LineError("missing_required_parameter", f"'{name}' is missing", name)
        custom_id = line["custom_id"]
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MOST_ID:
            why = f"'custom_id' is a string of 1 to {MOST_ID} characters"
            raise LineError("invalid_custom_id", why, "custom_id")
        if NUL in custom_id:
            raise LineError("invalid_custom_id", "'custom_id' has a NUL", "custom_id")
        if custom_id in self._seen:
            why = f"another line has the custom_id {custom_id[:100]!r}"
            raise LineError("duplicate_custom_id", why, "custom_id")
        if line["method"] != "POST":
            raise LineError("invalid_method", "'method' must be POST", "method")
        if line["url"] != self.endpoint:
            why = f"'url' must be the batch's endpoint, {self.endpoint}"
            raise LineError("mismatched_endpoint", why, "url")

    def _fail(self, error: LineError, line: int) -> None:
        about = {"code": error.code, "message": str(error), "param": error.param or None}
        self.errors.append({**about, "line": line or None})


def _infinite(value: object, name: str) -> str:
    """The path of the first number in the value that is not finite; empty: there is none."""
    if isinstance(value, float):
        return "" if isfinite(value) else name
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    return next((found for key, each in inner if (found := _infinite(each, f"{name}.{key}"))), "")
