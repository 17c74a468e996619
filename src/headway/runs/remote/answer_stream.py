"""An answer as it comes, piece by piece, from a stream of server-sent events (AnswerStream).

A whole JSON parse of each event would cost more time than all else that the client does, and make
the times of other streams late. So an event is searched for what counts, and parsed only if it
carries usage or an error.
"""

import json
import re
from typing import Any

PIECE = re.compile(rb'"(?:text|content|reasoning|reasoning_content)":\s*"(?!")')  # has text
FINISH = re.compile(rb'"finish_reason":\s*"(\w+)"')
USAGE = re.compile(rb'"usage":\s*\{')
ERROR = re.compile(rb'\s*\{\s*"error":')
DONE = b"[DONE]"
SHOWN = 200  # characters of an error that are kept


class AnswerStream:
    """What the events of one answer say."""

    __slots__ = ("_kept", "_rest", "done", "error", "finish", "finished", "last", "times", "usage")

    def __init__(self, keeps: bool = False) -> None:
        """keeps: keep the pieces, so that there is a `text`."""
        self._kept: list[bytes] | None = [] if keeps else None
        self.times: list[int] = []  # nanoseconds: when each piece of text came
        self.last = 0  # when the last event came
        self.finish = ""  # the finish reason
        self.finished = 0  # when it came
        self.usage: dict[str, Any] = {}
        self.error = ""
        self.done = False  # the stream said that it was complete
        self._rest = b""

    def feed(self, now: int, data: bytes) -> None:
        """Take bytes of the body, which came now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(now, line[5:])

    def _event(self, now: int, event: bytes) -> None:
        self.last = now
        if PIECE.search(event):
            self.times.append(now)
            if self._kept is not None:
                self._kept.append(event)
        if (found := FINISH.search(event)) is not None:
            self.finish, self.finished = found[1].decode(), now
        if USAGE.search(event):
            usage = _parsed(event).get("usage")
            self.usage = usage if isinstance(usage, dict) else {}
        elif ERROR.match(event):
            self.error = error_text(event) or "the stream ended with an error"
        elif event.strip() == DONE:
            self.done = True

    @property
    def text(self) -> str:
        """All text so far, if it is kept."""
        return "".join(_text(_parsed(event)) for event in self._kept or ())

    @property
    def is_whole(self) -> bool:
        """Whether the server said that this is all."""
        return not self.error and (self.done or bool(self.finish))


def error_text(body: bytes) -> str:
    """The message of an error body, in one line; empty: it has none."""
    plain = _parsed(body)
    error = plain.get("error", plain.get("detail", plain.get("message", "")))
    message = error.get("message", "") if isinstance(error, dict) else error
    text = message if isinstance(message, str) else json.dumps(message)
    return " ".join(text.split())[:SHOWN]


def _text(event: dict[str, Any]) -> str:
    """Of the first choice: what it answers, without its reasoning."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    delta = choice.get("delta") or {}
    text = choice.get("text") or delta.get("content") or ""
    return text if isinstance(text, str) else ""


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        plain = json.loads(body)
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) else {}


def tokens_of(usage: dict[str, Any], name: str) -> int | None:
    """A count of a usage object; None where it does not say."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
