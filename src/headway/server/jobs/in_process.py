"""A request to our own application, without a connection: what a job's item is answered by.

It passes all that a client's request passes, so that its answer, its refusals and its rows in the
ledger are those of any request.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message

from headway.server.config.tenant import Tenant
from headway.server.intake.access_record import recording
from headway.server.intake.keys import acting_as
from headway.server.protocol.retry_after import SOON


@dataclass(slots=True)
class Answer:
    """What the application has answered."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    code: str = ""  # of the error that it is
    model: str = ""  # the entry that answered; empty where there is only one
    tokens: tuple[int, int, int] = (0, 0, 0)  # input, of them cached, output

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "application/octet-stream")

    @property
    def retry_after(self) -> float:
        """Seconds after which it may be answered, if it was refused for now; 0: it was not."""
        if self.status not in (429, 503) or self.headers.get("x-should-retry") == "false":
            return 0.0
        return float(self.headers.get("retry-after-ms", SOON * 1_000)) / 1_000


async def post(
    app: ASGIApp, path: str, body: bytes, headers: Mapping[str, str], tenant: Tenant
) -> Answer:
    """POST this to the application, as this tenant. To cancel the task disconnects.

    Raises what the application raises beyond its own answer: a fault, which it has answered.
    """
    answer, pieces, sent = Answer(), list[bytes](), False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.get_running_loop().create_future()  # nobody disconnects
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message["headers"]:
                answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        else:
            pieces.append(message.get("body", b""))

    with recording() as record, acting_as(tenant):
        await app(_scope(path, headers), receive, send)
    answer.body, answer.code, answer.model = b"".join(pieces), record.code, record.model
    if call := record.call:
        prompt, output = call.tokens
        answer.tokens = prompt, call.cached, output
    return answer


def _scope(path: str, headers: Mapping[str, str]) -> dict[str, object]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": None,
        "server": None,
        "state": {},
    }
