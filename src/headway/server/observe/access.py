"""The access log: each request and its outcome. It never has a prompt, an answer or a key."""

from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.request import NEVER
from headway.server import clock
from headway.server.config.durations import SECOND
from headway.server.intake.access_record import AccessRecord, recording
from headway.server.observe.logs import Log

# Paths that machines ask every few seconds, the live page's own updates among them. Opening the
# page is an ordinary request.
POLLED = ("/health", "/ready", "/metrics", "/dashboard/live")
REFUSED = (429, 503)
LISTED = 10  # refusals per second that are logged above debug, one line each
LONGEST = 256  # characters of a path, at most


class AccessLog:
    """Middleware that logs a line for each request after its answer.

    requests: whether requests are logged; faults always are.
    """

    def __init__(self, app: ASGIApp, log: Log, requests: bool = True) -> None:
        self.app, self._log, self._requests = app, log, requests
        self._second = self._listed = self._unlisted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began = clock.now()
        sent: dict[str, Any] = {"status": 0, "id": ""}  # the answer's

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent.update(status=message["status"], id=_id(message["headers"]))
            await send(message)

        with recording() as record:
            try:
                await self.app(scope, receive, noting)
            except Exception:  # the edge: the request has been answered as far as possible
                self._log.exception("fault", **_request_values(scope), **sent)
            finally:
                if record.status:
                    sent.update(status=record.status, id=record.id)
                if self._requests:
                    self._say(scope, record, sent, began)

    def _say(self, scope: Scope, record: AccessRecord, sent: dict[str, Any], began: int) -> None:
        took = clock.now() - began
        status = sent["status"]
        request = _request_values(scope)
        about = {
            "method": request["method"],
            "path": request["path"],
            "status": status,
            "ms": round(took / 1e6, 1),
            **_learned(record, began),
            "client": request["client"],
            "id": sent["id"],
        }
        if status in REFUSED and not self._lists():
            self._unlisted += 1
            self._log.debug("request", **about)
        elif status == 200 and scope["path"] in POLLED:
            self._log.debug("request", **about)
        else:
            if self._unlisted:
                about["refusals_unlisted"], self._unlisted = self._unlisted, 0
            self._log.info("request", **about)

    def _lists(self) -> bool:
        """Count a refusal. Returns whether it still gets a line of its own in this second."""
        if (second := clock.now() // SECOND) != self._second:
            self._second, self._listed = second, 0
        self._listed += 1
        return self._listed <= LISTED


def _id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"x-request-id"), "")


def _request_values(scope: Scope) -> dict[str, object]:
    client = scope.get("client")
    path = scope["path"][:LONGEST]
    return {"method": scope["method"], "path": path, "client": client[0] if client else ""}


def _learned(record: AccessRecord, began: int) -> dict[str, object]:
    """The record's values for a request's line; empty ones are left out. began: when the request
    came, nanoseconds. A route's call came later than that, if another attempt was before it."""
    values: dict[str, object] = {"model": record.model, "lane": record.lane}
    values |= {"key": record.key, "code": record.code}
    if call := record.call:
        problem, routed = call.problem, call.routed
        values |= {"route": routed.route, "decision": routed.reason}
        tokens_in, tokens_out = call.tokens
        if problem and not record.code:  # a route's last attempt may have ended otherwise
            values["code"] = problem.code
        values["answer"] = call.id
        values |= {"tokens_in": tokens_in, "tokens_out": tokens_out}
        firsts = [row.first_token for row in call.rows.values() if row.first_token != NEVER]
        values |= {f"eta_{name}_ms": value for name, value in call.eta.told.items()}
        if call.relegated:
            values["relegated"] = True
        if firsts:
            values["ttft_ms"] = round((min(firsts) - began) / 1e6, 1)
    return {name: value for name, value in values.items() if value != ""}
