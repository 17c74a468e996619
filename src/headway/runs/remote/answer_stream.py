"""An answer as it comes, piece by piece, from a stream of server-sent events (AnswerStream).

Parsing each event as JSON would cost more time than everything else in the client, and would delay
the timestamps of other streams. So each event is searched for what counts, and parsed only if it
carries usage or may be an error.
"""

import json
import re
from typing import Any

PIECE = re.compile(rb'"(?:text|content|reasoning|reasoning_content)"\s*:\s*"(?!")')  # has text
FINISH = re.compile(rb'"finish_reason"\s*:\s*"(\w+)"')
USAGE = re.compile(rb'"usage"\s*:\s*\{')
ERROR = re.compile(rb'"error"(?!\s*:\s*null)')  # inside a string its quotes would be escaped
REASONS = ("stop", "length", "tool_calls", "function_call", "content_filter")  # not failures
DONE = b"[DONE]"
SHOWN = 200  # characters of an error that are kept


class AnswerStream:
    """What the events of one answer have said so far."""

    __slots__ = (
        *("_fails", "_kept", "_rest"),
        *("done", "error", "finish", "finished", "last", "times", "usage"),
    )

    def __init__(self, keeps: bool = False) -> None:
        """keeps: keep the pieces, so that `text` has them."""
        self._kept: list[bytes] | None = [] if keeps else None
        self.times: list[int] = []  # nanoseconds: when each piece of text came
        self.last = 0  # when the last event came
        self.finish = ""  # the finish reason
        self.finished = 0  # when it came
        self.usage: dict[str, Any] = {}
        self.error = ""
        self.done = False  # the stream said that it was complete
        self._fails = False  # the next data belongs to an event named error
        self._rest = b""

    def feed(self, now: int, data: bytes) -> None:
        """Take bytes of the body. now: when they came."""
        data = self._rest + data
        lines, self._rest = data.splitlines(), b""
        if not data.endswith(b"\n"):  # a carriage return may be half a line end
            self._rest = b"".join(lines[-1:]) + (b"\r" if data.endswith(b"\r") else b"")
            del lines[-1:]
        for line in filter(None, lines):
            if line.startswith(b"data:"):
                self._event(now, line[5:])
            elif line.startswith(b"event:"):
                self._fails = line[6:].strip() == b"error"

    def end(self, now: int) -> None:
        """Take the end of the body. A last event without a line end counts if it is whole."""
        event = self._rest.removeprefix(b"data:")
        if event.strip() == DONE or parsed(event):
            self.feed(now, b"\n")

    def _event(self, now: int, event: bytes) -> None:
        self.last = now
        if PIECE.search(event):
            self.times.append(now)
            if self._kept is not None:
                self._kept.append(event)
        if (found := FINISH.search(event)) is not None:
            self.finish, self.finished = found[1].decode(), now
            if self.finish not in REASONS:
                self._fail(event, f"finish_reason {self.finish}")
        if USAGE.search(event):
            usage = parsed(event).get("usage")
            if isinstance(usage, dict) and usage:  # a nested object's usage does not count
                self.usage = usage
        elif event.strip() == DONE:
            self.done = True
        if self._fails or ERROR.search(event):
            if self._fails or _is_error(event):
                self._fail(event, "the stream ended with an error")
            self._fails = False

    def _fail(self, event: bytes, otherwise: str) -> None:
        """Keep the first error. otherwise: its text if the event gives none."""
        self.error = self.error or error_text(event) or otherwise

    @property
    def text(self) -> str:
        """All text so far, if the pieces are kept."""
        return "".join(_text(parsed(event)) for event in self._kept or ())

    @property
    def is_whole(self) -> bool:
        """Whether the server said that the answer is complete, without an error."""
        said = self.finish or (self.done and (self.times or self.usage))
        return bool(said) and not self.error


def error_text(body: bytes) -> str:
    """The message in an error body, in one line; empty: there is none."""
    plain = parsed(body)
    error = plain.get("error") or plain.get("detail") or plain.get("message") or ""
    message = error.get("message", "") if isinstance(error, dict) else error
    text = message if isinstance(message, str) else json.dumps(message)
    return printable(text)[:SHOWN]


def printable(text: str) -> str:
    """A server's text as one line that can be encoded and holds no terminal control codes."""
    encoded = text.encode("utf-8", "replace").decode()  # half a character becomes a ?
    return " ".join("".join(c for c in encoded if c.isprintable() or c.isspace()).split())


def _is_error(event: bytes) -> bool:
    """Whether an event with the quoted word "error" is one. An event that is not JSON is."""
    plain = parsed(event)
    return (
        not plain or bool(plain.get("error")) or "error" in (plain.get("object"), plain.get("type"))
    )


def _text(event: dict[str, Any]) -> str:
    """The text of the first choice in an event, without its reasoning."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return ""
    delta = choice.get("delta")
    text = choice.get("text") or (delta.get("content") if isinstance(delta, dict) else "")
    return text if isinstance(text, str) else ""


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; empty: it holds none."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        return {}
    return plain if isinstance(plain, dict) else {}


def tokens_of(usage: dict[str, Any], name: str) -> int | None:
    """A token count of a usage object; None if it has none."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
