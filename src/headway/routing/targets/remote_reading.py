"""What a server elsewhere sends: a body, the lines of a stream, JSON, an error. Within bounds."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headway.core.request import NEVER
from headway.errors import DeadlineError, EngineError, HeadwayError, PromptError, RefusedError
from headway.routing.attempts import loop_now

if TYPE_CHECKING:
    from httpx2 import Response

MOST = 64 << 20  # bytes of an answer, or of a line of a stream
CALLERS_FAULT = 400, 413, 422  # statuses
TOO_LONG = "context_length_exceeded"  # a code of 400: another model may hold the prompt
LATE, REFUSED = (408, 504), (429, 503)
LONGEST = 3_600 * 1_000_000_000  # nanoseconds; some servers name a date, in seconds since 1970
SHOWN = 300  # characters of a server's message


async def body_of_answer(response: "Response") -> bytes:
    """The whole body. Raises EngineError if it is longer than MOST."""
    parts, size = list[bytes](), 0
    async for data in response.aiter_bytes():
        parts.append(data)
        size += len(data)
        _check_size(size)
    return b"".join(parts)


async def lines(response: "Response") -> AsyncGenerator[str]:
    """The lines of a stream of events. They end with a line feed or a carriage return alone: httpx2
    also ends them at U+2028 and the like, which JSON may hold as they are. Raises EngineError for a
    line that is longer than MOST."""
    parts, size = list[bytes](), 0  # of a line whose end has not come
    async for data in response.aiter_bytes():  # never empty
        ended = data.splitlines()
        rest = b"" if data.endswith((b"\n", b"\r")) else ended.pop()
        if ended:
            ended[0] = b"".join([*parts, ended[0]])
            parts, size = [], 0
        for line in ended:
            yield line.decode(errors="replace")
        parts.append(rest)
        size += len(rest)
        _check_size(size)
    yield b"".join(parts).decode(errors="replace")


def _check_size(size: int) -> None:
    if size > MOST:
        raise EngineError(f"the server's answer is longer than {MOST >> 20} MiB")


def parsed(text: str | bytes, what: str) -> Any:
    """The JSON of an answer or a stream. what: which, for the error. Raises EngineError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise EngineError(f"the server's {what} is no JSON") from error


def message_of(error: Any) -> str:
    """The message in the `error` of a body or of a stream."""
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or error)[:SHOWN]


def problem(status: int, headers: Mapping[str, str], body: str, name: str) -> HeadwayError:
    """The error of a response whose status is not 200, with the server's own message."""
    message, code = body[:SHOWN], ""
    if 300 <= status < 400:
        message = f"a redirect, which is not followed, to {headers.get('location', '')[:SHOWN]}"
    with suppress(EngineError, KeyError, TypeError):  # not of OpenAI's form: the text as it is
        error = parsed(body, "error")["error"]
        message = message_of(error)
        code = str(error.get("code") or "") if isinstance(error, dict) else ""
    said = f"{name}: {status}: {message}"
    if code == TOO_LONG:
        return RefusedError(said, NEVER)
    if status in CALLERS_FAULT:
        return PromptError(said)
    if status in LATE:
        return DeadlineError(said)
    if status in REFUSED:
        return RefusedError(said, _retry_at(headers))
    return EngineError(said)


def _retry_at(headers: Mapping[str, str]) -> int:
    """The time to ask again, at most LONGEST from now; NEVER: the server names none as a number."""
    for name, unit in (("retry-after-ms", 1e6), ("retry-after", 1e9)):
        try:
            return loop_now() + int(min(LONGEST, max(0.0, float(headers[name]) * unit)))
        except (KeyError, ValueError):
            continue
    return NEVER
