"""/v1/files: OpenAI's files, of the purpose `batch`."""

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Scope

from headway.server.http.exchange import EXCHANGE
from headway.server.http.openapi import responses
from headway.server.jobs.routes.objects import file_object, list_object
from headway.server.jobs.routes.query import one_of, page_of
from headway.server.jobs.routes.upload import Upload
from headway.server.jobs.service import JobService, no_such_file
from headway.server.protocol.problem import wrong
from headway.store.database import StoreError
from headway.store.files import StoredFile
from headway.store.ids import NUL, is_id

FILES = "/v1/files"
MOST = 10_000
FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "contentMediaType": "application/octet-stream"},
        "purpose": {"type": "string", "enum": ["batch"]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3_600, "maximum": 2_592_000},
    },
}
UPLOADED = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}}
LISTED = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in {
            "after": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
            "order": {"type": "string", "enum": ["asc", "desc"]},
            "purpose": {"type": "string"},
        }.items()
    ]
}


def file_routes(jobs: JobService) -> APIRouter:
    """The paths of files. Each tenant sees its own."""
    router, store = APIRouter(tags=["jobs"]), jobs.store
    _add_lists(router, jobs)

    async def found(request: Request, id: str) -> StoredFile:
        return await jobs.file(jobs.caller(request), id)

    @router.get(f"{FILES}/{{id}}", responses=responses(401, 404, 503))
    async def file(request: Request, id: str) -> JSONResponse:
        """What is known of a file."""
        return JSONResponse(file_object(await found(request, id)))

    @router.get(f"{FILES}/{{id}}/content", responses=responses(401, 404, 503))
    async def content(request: Request, id: str) -> StreamingResponse:
        """The file itself."""
        file = await found(request, id)
        pieces = _pieces(jobs, file, request.scope)
        headers = {"content-length": str(file.bytes)}
        return StreamingResponse(pieces, headers=headers, media_type="application/octet-stream")

    @router.delete(f"{FILES}/{{id}}", responses=responses(401, 404, 503))
    async def delete(request: Request, id: str) -> JSONResponse:
        """Delete a file. A batch that has begun does not need its input any more."""
        file = await found(request, id)
        await store.delete_file(file.id)
        return JSONResponse({"id": file.id, "object": "file", "deleted": True})

    return router


def _add_lists(router: APIRouter, jobs: JobService) -> None:
    """Add the paths that do not name a file: upload, and the list."""
    store = jobs.store

    @router.post(
        FILES, responses=responses(400, 401, 408, 413, 415, 429, 503), openapi_extra=UPLOADED
    )
    async def upload(request: Request) -> JSONResponse:
        """Upload the input of a batch."""
        tenant = jobs.caller(request)
        check = partial(jobs.check_bytes, tenant.name)
        form = Upload(store, tenant.name, jobs.settings.file_bytes, jobs.stall, check)
        return JSONResponse(file_object(await form.read(request, jobs.keep)))

    @router.get(FILES, responses=responses(400, 401, 404, 503), openapi_extra=LISTED)
    async def files(request: Request) -> JSONResponse:
        """Your files, the newest first."""
        tenant, query = jobs.caller(request), request.query_params
        after, limit = page_of(query, MOST, MOST, ("order", "purpose"))
        if after and not is_id(after, "file-"):  # the form only: the file may be deleted by now
            raise no_such_file(after, "after")
        oldest_first = one_of(query, "order", ("desc", "asc")) == "asc"
        if NUL in (purpose := query.get("purpose", "")):
            raise wrong("'purpose' has a NUL", "purpose", "invalid_value")
        asked = tenant.name, purpose, after, limit + 1
        page = partial(store.files.page, *asked, oldest_first=oldest_first)
        rows = await store.ask(page)
        data = [file_object(each) for each in rows[:limit]]
        return JSONResponse(list_object(data, has_more=len(rows) > limit))


async def _pieces(jobs: JobService, file: StoredFile, scope: Scope) -> AsyncIterator[bytes]:
    """The file's content. If it is deleted meanwhile, or its store fails, the client is cut off."""
    pieces, left = jobs.store.files.content(file), file.bytes
    with suppress(StoreError):  # the store's other users log it
        while piece := await jobs.store.next_of(pieces):
            left -= len(piece)
            yield piece
    if left and (exchange := scope.get("extensions", {}).get(EXCHANGE)):
        exchange.cut()
