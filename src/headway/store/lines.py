"""Lines of a batch's output files, in OpenAI's form."""

import json


def answered_line(
    job: str, number: int, custom_id: str, status: int, request_id: str, body: bytes
) -> bytes:
    """The line of an answered item, whatever its status. body: JSON."""
    response = f'"response": {{"status_code": {status}, "request_id": {json.dumps(request_id)}, '
    head = _head(job, number, custom_id) + response.encode()
    return head + b'"body": ' + body + b'}, "error": null}\n'


def unanswered_line(job: str, number: int, custom_id: str, code: str, message: str) -> bytes:
    """The line of an item that was never answered."""
    error = json.dumps({"code": code, "message": message}).encode()
    return _head(job, number, custom_id) + b'"response": null, "error": ' + error + b"}\n"


def _head(job: str, number: int, custom_id: str) -> bytes:
    id = f"batch_req_{job.removeprefix('batch_')}_{number}"
    return f'{{"id": {json.dumps(id)}, "custom_id": {json.dumps(custom_id)}, '.encode()
