"""/v1/batches: OpenAI's batches."""

import json
from functools import partial
from hashlib import sha256
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import JSONResponse

from headway.errors import SettingError
from headway.server.config.durations import SECOND, parse_duration
from headway.server.config.tenant import Tenant
from headway.server.http.body import BodyReader
from headway.server.http.openapi import request_of, responses
from headway.server.jobs.routes.objects import batch_object, list_object
from headway.server.jobs.routes.query import page_of
from headway.server.jobs.service import JobService, no_such_file
from headway.server.protocol.problem import wrong
from headway.server.protocol.reading import read
from headway.store.ids import is_id, new_id
from headway.store.jobs import Job, set_input_bytes

BATCHES = "/v1/batches"
MOST_BODY = 64 << 10
INPUT = "input_file_id"
WINDOW = 1, 30 * 86_400  # seconds
Key = Annotated[str, StringConstraints(max_length=64)]
Value = Annotated[str, StringConstraints(max_length=512)]


class ExpiresAfter(BaseModel):
    """When the result files are deleted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3_600, le=2_592_000)]


class BatchBody(BaseModel):
    """The body of POST /v1/batches."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_file_id: str
    endpoint: str
    completion_window: Annotated[
        str, Field(description="A time such as 24h; then the batch expires. 30 days at most.")
    ]
    metadata: Annotated[dict[Key, Value], Field(max_length=16)] | None = None
    output_expires_after: ExpiresAfter | None = None


def batch_routes(jobs: JobService, bodies: BodyReader) -> APIRouter:
    """The paths of batches. Each tenant sees its own."""
    router, store = APIRouter(tags=["jobs"]), jobs.store

    @router.post(
        BATCHES,
        responses=responses(400, 401, 403, 404, 408, 409, 413, 415, 429, 503),
        openapi_extra=request_of(BatchBody),
    )
    async def create(request: Request) -> JSONResponse:
        """Begin a batch: each line of its input file is a request to `endpoint`."""
        tenant = jobs.caller(request)
        async with bodies.read(request, MOST_BODY) as raw:
            body, hashed = read(BatchBody, raw), sha256(raw).hexdigest()
        jobs.may_batch(tenant, body.endpoint)
        if not is_id(body.input_file_id, "file-"):
            raise no_such_file(body.input_file_id, INPUT)
        job = _new(jobs, request, tenant, body, hashed)
        return JSONResponse(batch_object(await jobs.add(job, partial(_find_input, job=job))))

    @router.get(BATCHES, responses=responses(400, 401, 404, 503))
    async def batches(request: Request) -> JSONResponse:
        """Your batches, the newest first."""
        tenant = jobs.caller(request)
        after, limit = page_of(request.query_params, 20, 100)
        if after:
            await jobs.find(tenant, after, is_batch=True, param="after")

        def listed() -> list[Job]:
            return store.jobs.page(tenant.name, after, limit + 1, batches=True)

        rows = await store.ask(listed)
        data = [batch_object(each) for each in rows[:limit]]
        return JSONResponse(list_object(data, has_more=len(rows) > limit))

    @router.get(f"{BATCHES}/{{id}}", responses=responses(401, 404, 503))
    async def batch(request: Request, id: str) -> JSONResponse:
        """How far it is."""
        job = await jobs.find(jobs.caller(request), id, is_batch=True)
        return JSONResponse(batch_object(job))

    @router.post(f"{BATCHES}/{{id}}/cancel", responses=responses(401, 404, 503))
    async def cancel(request: Request, id: str) -> JSONResponse:
        """End it. What has been answered is in its result files."""
        job = await jobs.cancel(jobs.caller(request), id, is_batch=True)
        return JSONResponse(batch_object(job))

    return router


def _find_input(connection: Connection, job: Job) -> None:
    """Find the input file of a new batch, within the transaction that adds it. A batch that was
    already stored does not need it. Raises Problem."""
    if not set_input_bytes(connection, job):
        raise no_such_file(job.input_file or "", INPUT)


def _new(jobs: JobService, request: Request, tenant: Tenant, body: BatchBody, hashed: str) -> Job:
    now, window = jobs.store.unix(), _seconds(body.completion_window)
    kept = body.output_expires_after
    return Job(
        new_id("batch_", now),
        tenant.name,
        tenant.key,
        is_batch=True,
        endpoint=body.endpoint,
        window=window,
        created_at=now,
        expires_at=now + window,
        input_file=body.input_file_id,
        output_expires_after=kept.seconds if kept else None,
        details=json.dumps({"metadata": body.metadata}),
        callback=jobs.callback(request.headers),
        idempotency_key=jobs.idempotency_key(request.headers),
        request_hash=hashed,
    )


def _seconds(window: str) -> int:
    try:
        seconds = parse_duration(window) // SECOND
    except SettingError as error:
        raise wrong(f"'completion_window': {error}", "completion_window", "invalid_value") from None
    if not WINDOW[0] <= seconds <= WINDOW[1]:
        why = "'completion_window' must be from 1s to 720h"
        raise wrong(why, "completion_window", "invalid_value")
    return seconds
