"""The ledger's paths: GET /v1/requests/{id} explains a call, POST /v1/outcomes adds a label."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.http.body import BodyReader
from headway.server.http.openapi import request_of, responses
from headway.server.intake.access_record import recorded
from headway.server.intake.keys import KeyRing
from headway.server.ledger.books import Books
from headway.server.ledger.explanation import explanation, open_explanation
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.reading import read

if TYPE_CHECKING:
    from headway.server.ledger.ledger_service import LedgerService

MILLION = 1_000_000
Subject = Annotated[str, Field(min_length=1, max_length=255)]


class OutcomeBody(BaseModel):
    """What became of a request or of a workflow: one of the two."""

    model_config = ConfigDict(extra="forbid", strict=True)

    request: Annotated[
        Subject | None, Field(description="The id of an answer, or an X-Request-Id.")
    ] = None
    workflow: Annotated[Subject | None, Field(description="An X-Headway-Workflow.")] = None
    label: Annotated[
        str,
        Field(
            pattern=r"^[a-z][a-z0-9_]{0,63}$",
            description="Such as resolved, accepted, rejected or abandoned.",
        ),
    ]
    value: Annotated[
        float | None, Field(ge=-1e9, le=1e9, allow_inf_nan=False, description="Kept in millionths.")
    ] = None


class Sent:
    """Middleware: tells the books when the last byte of a call's answer was sent. A route's
    attempts whose answers were not sent are reported as lost."""

    def __init__(self, app: ASGIApp, books: Books) -> None:
        self._app, self._books = app, books

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        with recorded() as record:
            try:
                await self._app(scope, receive, send)
            finally:
                for call in record.calls:
                    self._books.sent(call, lost=call is not record.call)


def request_routes(keys: KeyRing, books: Books, kept: "LedgerService | None") -> APIRouter:
    """The path that explains calls. kept: the stored ledger; None: there is none."""
    router = APIRouter(tags=["ledger"])

    @router.get("/v1/requests/{id:path}", responses=responses(401, 404, 503))
    async def explain(request: Request, id: str) -> JSONResponse:
        """Where the time of one of your calls went, by the id of its answer or its X-Request-Id."""
        tenant = keys.caller(request.headers).name
        if known := books.find_open(tenant, id):
            return JSONResponse(open_explanation(known))
        rows = books.find(tenant, id)
        if not rows and kept:
            rows = await kept.rows_of(tenant, id)
        if not rows:
            what = f"there is no request {id[:200]!r} of yours, or it is forgotten"
            raise Problem(404, what, "id", "no_such_request")
        return JSONResponse(explanation(rows))

    return router


def outcome_routes(
    keys: KeyRing, bodies: BodyReader, most: int, kept: "LedgerService"
) -> APIRouter:
    """The path that adds outcomes to a stored ledger. most: bytes of a body."""
    router = APIRouter(tags=["ledger"])

    @router.post(
        "/v1/outcomes",
        responses=responses(400, 401, 404, 413, 415, 503),
        openapi_extra=request_of(OutcomeBody),
    )
    async def outcome(request: Request) -> JSONResponse:
        """Give one of your requests or workflows a label, at any time after it was answered. The
        same label again replaces its value."""
        tenant = keys.caller(request.headers).name
        async with bodies.read(request, most) as raw:
            body = read(OutcomeBody, raw)
        if (body.request is None) == (body.workflow is None):
            raise wrong("give 'request' or 'workflow'", "request")
        kind = "request" if body.workflow is None else "workflow"
        subject = body.request or body.workflow or ""
        value = None if body.value is None else round(body.value * MILLION)
        added = await kept.add_outcome(tenant, kind, subject, body.label, value)
        return JSONResponse(
            {"object": "outcome", kind: added.subject, "label": added.label, "value": body.value}
        )

    return router
