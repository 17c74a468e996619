"""Calls that are answered later: `Prefer: respond-async` on any endpoint, and /v1/jobs."""

import json
import re
from collections.abc import Mapping
from functools import partial
from hashlib import sha256

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.http.body import JSON, BodyReader
from headway.server.http.errors import error_response, gone_response
from headway.server.http.openapi import responses
from headway.server.intake.keys import acting_tenant
from headway.server.jobs.routes.objects import job_bytes, job_object, list_object
from headway.server.jobs.routes.query import page_of
from headway.server.jobs.service import JobService
from headway.server.protocol.deadlines import DUE, SUPERSEDE, TIMEOUT, TPOT, TTFT
from headway.server.protocol.expected import EXPECTED, expected_tokens
from headway.server.protocol.labels import ATTEMPT, PROMPT_VERSION, WORKFLOW, labels_of
from headway.server.protocol.problem import Problem, wrong
from headway.store.database import StoreError
from headway.store.ids import new_id
from headway.store.items.items import NewItem, add_item
from headway.store.jobs import IN_PROGRESS, Job

JOBS = "/v1/jobs"
DAY = 86_400
LATER = "respond-async"
MOST_WAIT = 20.0  # seconds for which `Prefer: wait=N` holds an answer
# Headers that the call keeps until it runs, and headers that are refused: they mean nothing then.
KEPT = (PROMPT_VERSION, WORKFLOW, ATTEMPT, EXPECTED, "x-request-id")
REFUSED = (TTFT, TPOT, TIMEOUT, DUE, SUPERSEDE)
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*(\d{1,6})")


class LaterCalls:
    """Middleware: turns a request with `Prefer: respond-async` into a job, and answers 202."""

    def __init__(self, app: ASGIApp, jobs: JobService, bodies: BodyReader) -> None:
        self._app, self._jobs, self._bodies = app, jobs, bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_wanted(scope):
            return await self._app(scope, receive, send)
        try:
            response: Response = await self._accept(Request(scope, receive))
        except Problem as problem:
            response = error_response(problem)
        except StoreError as error:
            response = error_response(store_problem(error))
        except ClientDisconnect:
            response = gone_response()
        await response(scope, receive, send)

    def _is_wanted(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "POST":
            return False
        if scope["path"] not in self._jobs.host.endpoints or acting_tenant():
            return False
        return any(
            name == b"prefer" and LATER in value.decode("latin-1").lower()
            for name, value in scope["headers"]
        )

    async def _accept(self, request: Request) -> Response:
        jobs, endpoint, headers = self._jobs, request.url.path, request.headers
        tenant = jobs.caller(request)
        jobs.may_add(tenant, endpoint)
        details = json.dumps({"headers": _kept(headers, jobs.host.lane)})
        async with self._bodies.read(
            request, jobs.body_bytes, jobs.host.endpoints[endpoint]
        ) as raw:
            body = bytes(raw)
        kinds = headers.get("content-type", "")[:255], headers.get("accept", "*/*")[:255]
        now = jobs.store.unix()
        job = Job(
            new_id("job_", now),
            *(tenant.name, tenant.key),
            is_batch=False,
            endpoint=endpoint,
            window=DAY,
            created_at=now,
            expires_at=now + DAY,
            status=IN_PROGRESS,
            in_progress_at=now,
            details=details,
            callback=jobs.callback(headers),
            idempotency_key=jobs.idempotency_key(headers),
            request_hash=sha256(f"{endpoint} {kinds} ".encode() + body).hexdigest(),
            total=1,
            input_bytes=len(body),
        )
        item = NewItem(0, "", body, *kinds)
        with jobs.storing(len(body)):
            found = await jobs.add(job, partial(add_item, job=job, item=item))
        url = f"{JOBS}/{found.id}"
        given = {"location": url, "retry-after": "1", "preference-applied": LATER}
        return JSONResponse(job_object(found), 202, given)


def _kept(headers: Mapping[str, str], lane: str) -> dict[str, str]:
    """The headers to run the call with. lane: the jobs' lane. Raises Problem."""
    given = headers.get("x-headway-lane") or lane
    if given != lane:
        why = f"a later call runs in the lane {lane!r}, not in {given[:200]!r}"
        raise wrong(why, "x-headway-lane", "invalid_value")
    for name in REFUSED:
        if name in headers:
            raise wrong(f"a later call cannot have {name}", name, "invalid_value")
    labels_of(headers)  # raises Problem, as does the next call
    expected_tokens(headers)
    return {name: headers[name] for name in KEPT if name in headers}


def call_routes(jobs: JobService) -> APIRouter:
    """The paths of jobs. Each tenant sees its own."""
    router, store = APIRouter(tags=["jobs"]), jobs.store

    @router.get(JOBS, responses=responses(400, 401, 404, 503))
    async def listed(request: Request) -> JSONResponse:
        """Your jobs, the newest first, without their results."""
        tenant = jobs.caller(request)
        after, limit = page_of(request.query_params, 20, 100)
        if after:
            await jobs.find(tenant, after, is_batch=False, param="after")
        page = partial(store.jobs.page, tenant.name, after, limit + 1, batches=False)
        rows = await store.ask(page)
        data = [job_object(each) for each in rows[:limit]]
        return JSONResponse(list_object(data, has_more=len(rows) > limit))

    @router.get(f"{JOBS}/{{id}}", responses=responses(401, 404, 503))
    async def job(request: Request, id: str) -> Response:
        """How far it is. `Prefer: wait=20` waits for its end, for 20 s at most."""
        found = await _ended(jobs, request, id)
        result = await store.ask(store.items.result, id) if found.has_ended else None
        headers = {} if found.has_ended else {"retry-after": "1"}
        return Response(job_bytes(found, result), headers=headers, media_type=JSON)

    @router.get(f"{JOBS}/{{id}}/result", responses=responses(401, 404, 409, 503))
    async def result(request: Request, id: str) -> Response:
        """What the call was answered, with its own status and content type."""
        found = await _ended(jobs, request, id)
        answer = await store.ask(store.items.result, id)
        if answer is None:
            why = f"the job is {found.status}: it has no result"
            retry = 0.0 if found.has_ended else 1.0
            raise Problem(409, why, "id", "no_result", retry=retry, final=found.has_ended)
        return Response(answer.output, answer.status_code, media_type=answer.content_type)

    @router.post(f"{JOBS}/{{id}}/cancel", responses=responses(401, 404, 503))
    async def cancel(request: Request, id: str) -> JSONResponse:
        """End it. One that has ended stays as it is."""
        found = await jobs.cancel(jobs.caller(request), id, is_batch=False)
        return JSONResponse(job_object(found))

    return router


async def _ended(jobs: JobService, request: Request, id: str) -> Job:
    """The job, once it has ended or the wait that the caller asked for is over."""
    tenant = jobs.caller(request)
    job = await jobs.find(tenant, id, is_batch=False)
    if job.has_ended or not (wanted := _WAIT.search(request.headers.get("prefer", "").lower())):
        return job
    await jobs.waiting.wait(id, min(float(wanted[1]), MOST_WAIT))
    return await jobs.find(tenant, id, is_batch=False)


def store_problem(error: StoreError) -> Problem:
    """The 503 while the store cannot be used. It leaves out the error's text, which may name
    hosts or paths."""
    return Problem(503, "the store of jobs cannot be used now", code="store_down", retry=5.0)
