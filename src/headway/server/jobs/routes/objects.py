"""Files, batches and jobs as JSON: OpenAI's objects, and one of ours for a single call."""

import json
from typing import Any

from headway.store.files import StoredFile
from headway.store.items.items import Result
from headway.store.jobs import Job

STAMPS = (
    *("in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at"),
    *("cancelling_at", "cancelled_at"),
)


def file_object(file: StoredFile) -> dict[str, Any]:
    """OpenAI's `file`."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }


def batch_object(job: Job) -> dict[str, Any]:
    """OpenAI's `batch`."""
    errors = {"object": "list", "data": job.errors} if job.errors else None
    counts = {"total": job.total, "completed": job.completed, "failed": job.failed}
    tokens = {
        "input_tokens": job.input_tokens,
        "input_tokens_details": {"cached_tokens": job.cached_tokens},
        "output_tokens": job.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": job.input_tokens + job.output_tokens,
    }
    return {
        "id": job.id,
        "object": "batch",
        "endpoint": job.endpoint,
        "model": job.model or None,
        "errors": errors,
        "input_file_id": job.input_file,
        "completion_window": window_text(job.window),
        "status": job.status,
        "output_file_id": job.output_file,
        "error_file_id": job.error_file,
        "created_at": job.created_at,
        **{name: getattr(job, name) for name in STAMPS},
        "request_counts": counts,
        "usage": tokens,
        "metadata": job.metadata,
    }


def job_object(job: Job) -> dict[str, Any]:
    """The object of a call that is answered later, without its result."""
    return {
        "id": job.id,
        "object": "job",
        "endpoint": job.endpoint,
        "status": job.status,
        "created_at": job.created_at,
        **{name: getattr(job, name) for name in STAMPS if not name.startswith("finalizing")},
        "result": None,
        "result_url": f"/v1/jobs/{job.id}/result",
    }


def job_bytes(job: Job, result: Result | None) -> bytes:
    """The object of a call that is answered later, as JSON. The result's body is included if it is
    JSON, as it was stored: reading a large one would hold up the server."""
    whole = job_object(job)
    if result is None:
        return json.dumps(whole).encode()
    del whole["result"]
    is_json = result.content_type.partition(";")[0] == "application/json"
    body = result.output if is_json and result.output else b"null"
    about = {"status_code": result.status_code, "content_type": result.content_type}
    head, inner = (json.dumps(each)[:-1].encode() for each in (whole, about))
    return b"".join((head, b', "result": ', inner, b', "body": ', body, b"}}"))


def list_object(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list."""
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    none = {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, **none, **ends, "has_more": has_more}


def window_text(seconds: int) -> str:
    """A window as OpenAI writes it, such as 24h."""
    for unit, size in (("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
