"""The bytes of a request, bounded while they come."""

from starlette.requests import Request

from headway.server.protocol.problem import Problem


async def body_of(request: Request, most: int) -> bytearray:
    """Raises Problem: 413 beyond so many bytes, 415 for what is not said to be JSON."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0]
    if kind.strip().lower() != "application/json":
        raise Problem(415, f"the content-type must be application/json, not {kind[:80]!r}")
    declared = request.headers.get("content-length", "0")
    body = bytearray()
    too_long = Problem(413, f"the body has more than {most} bytes", code="body_too_large")
    if declared.isdecimal() and int(declared) > most:
        raise too_long
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise too_long
    return body
