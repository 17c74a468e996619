"""What is refused of a header whatever its application, and a refusal as bytes."""

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from headway.server.protocol.chunks import compact
from headway.server.protocol.problem import Problem

CONTROL = b"x-headway-", b"x-slo-"  # how the names of our own fields begin


def refusal(problem: Problem) -> bytes:
    """A whole answer, after which the connection is closed."""
    body = compact(problem.body).encode()
    head = [
        STATUS_LINE[problem.status],
        *[f"{name}: {value}\r\n".encode() for name, value in problem.headers.items()],
        b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body),
        b"connection: close\r\n\r\n",
    ]
    return b"".join([*head, body])


def repeated(headers: list[tuple[bytes, bytes]]) -> str:
    """A field of ours that is there more than once; empty: none is."""
    names = [name for name, _ in headers if name.startswith(CONTROL)]
    return next((name.decode() for name in names if names.count(name) > 1), "")
