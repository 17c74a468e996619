"""The access log: who asked for what, and what became of it. Never a prompt, an answer or a key."""

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.request import NEVER
from headway.server import clock
from headway.server.answering.call import Call
from headway.server.config.sections.durations import SECOND
from headway.server.observe.logs import Log

PROBES = ("/health", "/ready", "/metrics")  # asked every few seconds, by machines
REFUSED = (429, 503)
LISTED = 10  # refusals a second that have a line of their own, above debug
LONGEST = 256  # characters of a path


@dataclass(slots=True)
class Noted:
    """What is learned of a request while it is answered."""

    key: str = ""  # its name
    lane: str = ""
    code: str = ""  # of the error that it was answered with
    call: Call | None = None


_NOTED: ContextVar[Noted] = ContextVar("noted")


def noted() -> Noted:
    """Of the request that this task answers; what is said of none is lost."""
    return _NOTED.get(None) or Noted()


class Access:
    """Around the whole application: it sees each answer as it leaves, and each fault.

    requests: whether those have lines; faults always have.
    """

    def __init__(self, app: ASGIApp, log: Log, requests: bool = True) -> None:
        self.app, self._log, self._requests = app, log, requests
        self._second = self._listed = self._unlisted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, seen, left = clock.now(), Noted(), {"status": 0, "id": ""}
        token = _NOTED.set(seen)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                left.update(status=message["status"], id=_id(message["headers"]))
            await send(message)

        try:
            await self.app(scope, receive, sent)
        except Exception:  # the edge: it has been answered, as far as that was possible
            self._log.exception("fault", **_asked(scope), **left)
        finally:
            _NOTED.reset(token)
            if self._requests:
                self._say(scope, seen, left, clock.now() - began)

    def _say(self, scope: Scope, seen: Noted, left: dict[str, Any], took: int) -> None:
        status = left["status"]
        asked = _asked(scope)
        about = {
            "method": asked["method"],
            "path": asked["path"],
            "status": status,
            "ms": round(took / 1e6, 1),
            **_learned(seen),
            "client": asked["client"],
            "id": left["id"],
        }
        if status in REFUSED and not self._lists():
            self._unlisted += 1
            self._log.debug("request", **about)
        elif status == 200 and scope["path"] in PROBES:
            self._log.debug("request", **about)
        else:
            if self._unlisted:
                about["refusals_unlisted"], self._unlisted = self._unlisted, 0
            self._log.info("request", **about)

    def _lists(self) -> bool:
        """Whether one more refusal has a line in this second."""
        if (second := clock.now() // SECOND) != self._second:
            self._second, self._listed = second, 0
        self._listed += 1
        return self._listed <= LISTED


def _id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"x-request-id"), "")


def _asked(scope: Scope) -> dict[str, object]:
    client = scope.get("client")
    path = scope["path"][:LONGEST]
    return {"method": scope["method"], "path": path, "client": client[0] if client else ""}


def _learned(seen: Noted) -> dict[str, object]:
    """Without what there is none of."""
    said: dict[str, object] = {"lane": seen.lane, "key": seen.key, "code": seen.code}
    if call := seen.call:
        problem = call.problem
        tokens_in, tokens_out = call.tokens
        said |= {"code": problem.code if problem else "", "answer": call.id}
        said |= {"tokens_in": tokens_in, "tokens_out": tokens_out}
        firsts = [row.first_token for row in call.rows.values() if row.first_token != NEVER]
        if firsts:
            said["ttft_ms"] = round((min(firsts) - call.arrived) / 1e6, 1)
    return {name: value for name, value in said.items() if value != ""}
