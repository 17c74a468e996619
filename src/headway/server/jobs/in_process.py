"""Send a job's item to our own application as a request, without a connection.

It goes through the same code as a client's request, so its answer, refusals and ledger rows are
the same.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message

from headway.server import clock
from headway.server.config.tenant import Tenant
from headway.server.intake.access_record import recording
from headway.server.intake.keys import acting_as
from headway.server.protocol.retry_after import SOON

SPENT = "spend_limit_reached"
# Seconds to wait when a key may spend no more today, or less if the day ends. Open requests hold
# the most that they may cost, so there may be more to spend once they have ended.
SPENT_PAUSE = 300
DAY = 86_400  # seconds; a day begins at 00:00 UTC


@dataclass(slots=True)
class Answer:
    """The application's answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    code: str = ""  # the error's code; empty: no error
    model: str = ""  # the entry of `models` that answered; empty if there is only one
    tokens: tuple[int, int, int] = (0, 0, 0)  # input, the cached part of it, output

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "application/octet-stream")

    @property
    def retry_after(self) -> float:
        """Seconds after which to retry a temporary refusal; 0: it is not one."""
        if self.code == SPENT:  # final for a client, but a job can wait
            return float(min(SPENT_PAUSE, DAY - clock.unix() % DAY))
        if self.status not in (429, 503) or self.headers.get("x-should-retry") == "false":
            return 0.0
        return float(self.headers.get("retry-after-ms", SOON * 1_000)) / 1_000


async def post(
    app: ASGIApp, path: str, body: bytes, headers: Mapping[str, str], tenant: Tenant
) -> Answer:
    """POST a body to the application, as this tenant. Cancelling the task acts as a disconnect.

    Raises the exception of a fault, which the application raises again after answering it.
    """
    answer, pieces, sent = Answer(), list[bytes](), False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.get_running_loop().create_future()  # never a disconnect message
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
