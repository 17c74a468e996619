"""Refusals as bytes, and the header fields that may not be repeated."""

from asyncio import Transport
from contextlib import suppress

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from headway.server.protocol.chunks import compact
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import SOON, jittered

CONTROL = b"x-headway-", b"x-slo-"  # prefixes of the header fields that may not be repeated


def refusal(problem: Problem) -> bytes:
    """A complete response that closes the connection."""
    body = compact(problem.body).encode()
    head = [
        STATUS_LINE[problem.status],
        *[f"{name}: {value}\r\n".encode() for name, value in problem.headers.items()],
        b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body),
        b"connection: close\r\n\r\n",
    ]
    return b"".join([*head, body])


def send_refusal(transport: Transport, problem: Problem) -> None:
    """Send the whole response, and that nothing follows it."""
    transport.write(refusal(problem))
    if transport.can_write_eof():
        with suppress(OSError):  # the client has gone; while reading was paused, nobody saw it
            transport.write_eof()


def unavailable(message: str, code: str) -> Problem:
    """The answer to a request that another server, or a later retry, may be served."""
    return Problem(503, message, code=code, retry=jittered(SOON))


def repeated(headers: list[tuple[bytes, bytes]]) -> str:
    """The name of a CONTROL field that occurs more than once; empty: there is none."""
    names = [name for name, _ in headers if name.startswith(CONTROL)]
    return next((name.decode() for name in names if names.count(name) > 1), "")
