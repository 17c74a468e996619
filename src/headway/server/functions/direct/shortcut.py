"""Shortcut: answers most calls of functions without the framework, whose layers cost more than
everything else together."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from starlette.types import Scope

from headway.server.config.config import ServerConfig
from headway.server.functions.codecs import JSON, KINDS, kind_of
from headway.server.functions.messages import Ask
from headway.server.functions.routes import Admitted, FunctionFront
from headway.server.http.application import REQUEST_ID, id_of
from headway.server.http.body import BodyReader
from headway.server.http.call_time import CallTimer
from headway.server.http.disconnect import client_gone
from headway.server.http.errors import fault, note
from headway.server.http.exchange import EXCHANGE, Exchange, Header
from headway.server.http.guard import HostCheck
from headway.server.http.interruptible import Interruptible
from headway.server.intake.access_record import access_record
from headway.server.protocol.chunks import compact
from headway.server.protocol.deadlines import timeout
from headway.server.protocol.problem import Problem

# Headers of a web page, of a call to be answered later, and of a body that is refused.
UNUSUAL = {"origin", "prefer", "content-encoding"}


class Head(NamedTuple):
    """What the header alone says of a call that passes all checks that need no key."""

    headers: Mapping[str, str]  # by name, in lower case; of several, the first
    id: bytes  # the client's id of the request; may be empty
    kind: str  # of the body
    accept: str  # of the answer
    limit: int  # nanoseconds in which it must be answered


class Shortcut:
    """Answers a call of one item that is to be answered now, if its whole body is there and no web
    page sent it.

    The shortcut does what the application's layers would do, with the same functions: the bounds of
    the body, Host, the request's id, the key and its limits, the lane, the time limit, a client
    that leaves, and the answer to each error. It leaves any unusual call to the layers, before
    anything is counted or read.
    """

    def __init__(
        self, fronts: Mapping[str, FunctionFront], bodies: BodyReader, config: ServerConfig
    ) -> None:
        """fronts: by path."""
        self._fronts, self._bodies = fronts, bodies
        self._check_host = HostCheck(config)
        self._limits = config.server.limits
        self._timer = CallTimer(self._limits.call_time)

    async def __call__(self, scope: Scope) -> bool:
        """Answer the request. False: nothing was done."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return False
        front = self._fronts.get(scope["path"])
        exchange = scope.get("extensions", {}).get(EXCHANGE)
        if front is None or exchange is None or front.about.streams:
            return False
        if (body := exchange.body) is None:
            await asyncio.sleep(0)  # many clients send it right behind the header
            body = exchange.body
        if body is None or len(body) > self._limits.body_bytes:
            return False
        memory = exchange.memory
        if memory.headers != scope["headers"]:
            memory.headers, memory.learned = scope["headers"], self._head(scope)
        head: Head | None = memory.learned
        if head is None or not self._bodies.passes(len(body)):
            return False
        await self._reply(front, head, body, exchange)
        return True

    async def _reply(
        self, front: FunctionFront, head: Head, body: bytes, exchange: Exchange
    ) -> None:
        """Send the result or the error. Raises an error that is no Problem, once it is answered."""
        id = id_of(head.id)
        record, failed = access_record(), None
        headers: list[Header] = []
        record.id = id.decode("latin-1")
        try:
            body = await self._answer(front, head, body, exchange)
            kind, record.status = head.accept, 200
        except Exception as error:
            failed = None if isinstance(error, Problem) else error
            problem = error if isinstance(error, Problem) else fault(error)
            note(problem)
            body, kind, record.status = compact(problem.body).encode(), JSON, problem.status
            headers = [(name.encode(), each.encode()) for name, each in problem.headers.items()]
        length = b"%d" % len(body)
        headers += (b"content-length", length), (b"content-type", kind.encode()), (REQUEST_ID, id)
        await exchange.answer(record.status, headers, body)
        if failed:
            raise failed  # to the log

    def _head(self, scope: Scope) -> Head | None:
        """The call's header; None: the layers must answer the call."""
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        id = headers.get("x-request-id", "")  # the layers answer an unprintable one with 500
        if kind not in KINDS or not id.isprintable() or not headers.keys().isdisjoint(UNUSUAL):
            return None
        try:
            self._check_host(scope)
            limit = min(self._limits.call_time, timeout(headers))
        except Problem:
            return None
        accept = kind_of(headers.get("accept", ""), kind)
        return Head(headers, id.encode("latin-1"), kind, accept, limit)

    async def _answer(
        self, front: FunctionFront, head: Head, body: bytes, exchange: Exchange
    ) -> bytes:
        """The body of the result. Raises Problem."""
        interruptible = Interruptible()
        exchange.gone = lambda: interruptible.interrupt(client_gone())
        timer = self._timer if head.limit == self._timer.limit else CallTimer(head.limit)
        timer.add(interruptible)
        try:
            with interruptible, Admitted(front, head.headers) as admitted:
                wishes = front.wishes(head.headers, admitted.tenant)
                ask = Ask(body, head.kind, head.accept, wishes)
                return await front.answer(ask, admitted.call)
        finally:
            exchange.gone = None
            timer.remove(interruptible)
