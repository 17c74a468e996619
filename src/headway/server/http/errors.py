"""Turns every exception of a request into OpenAI's nested error body."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from headway.server.intake.access_record import access_record
from headway.server.protocol.problem import Problem, wrong

JOBS = "jobs.store"
NEEDED = {  # what the configuration must have for a path to exist
    "/v1/files": JOBS,
    "/v1/batches": JOBS,
    "/v1/jobs": JOBS,
    "/v1/outcomes": "ledger.url",
    "/v1/versions": "versions.store",
    "/v1/functions": "a function in `models`",
}
CLIENT_GONE = 499  # nginx's status. Only the access log sees it: the client has gone


def install_error_handlers(app: FastAPI) -> None:
    """Install the handlers for all routes, and for paths and methods that do not exist."""
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        Problem: _problem,
        HTTPException: _http_exception,
        RequestValidationError: _wrong_path,
        ClientDisconnect: _disconnected,
        Exception: _fault,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def error_response(problem: Problem) -> JSONResponse:
    """The problem as a response."""
    note(problem)
    return JSONResponse(problem.body, problem.status, problem.headers)


def note(problem: Problem) -> None:
    """Note the code of the problem that a request is answered with, for the access log.

    Cuts the problem's links to other objects. Its traceback leads to the frames it passed, and so
    to the request's body and texts. If one of those leads back to the problem, only a full garbage
    collection would free them, and an idle server runs none for hours.
    """
    access_record().code = problem.code
    problem.__traceback__ = problem.__context__ = problem.__cause__ = None


def fault(error: Exception) -> Problem:
    """The answer to an error in the server itself."""
    return Problem(500, f"the server has failed: {type(error).__name__}", code="fault")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error_response(error)


async def _http_exception(request: Request, error: Exception) -> Response:
    """Answer Starlette's error for an unknown path or a wrong method; keep its Allow header."""
    assert isinstance(error, HTTPException)
    path, code = request.url.path, ""
    target = f"{request.method} {path[:200]}"
    what = f"{target}: {error.detail}"
    if error.status_code == 404:
        hint = "/openapi.json lists what there is"
        if needed := NEEDED.get(path):
            hint = f"the server's configuration must have {needed}"
        what, code = f"there is no {target} here; {hint}", "unknown_url"
    response = error_response(Problem(error.status_code, what, code=code))
    response.headers.update(error.headers or {})
    return response


async def _wrong_path(request: Request, error: Exception) -> Response:
    """Answer FastAPI's validation error, as for a path part that is not a number."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = str(first["loc"][-1])
    return error_response(wrong(f"'{param}': {first['msg']}", param, "invalid_value"))


async def _disconnected(request: Request, error: Exception) -> Response:
    return gone_response()


def gone_response() -> Response:
    """The answer where the client left while its body was being read."""
    return Response(status_code=CLIENT_GONE)


async def _fault(request: Request, error: Exception) -> Response:
    """Answer an error in the server itself. The traceback goes to the log, not to the client.

    Starlette sends this answer outside all our middleware, so the request's id is added here.
    """
    response = error_response(fault(error))
    if id := request.scope.get("state", {}).get("request_id"):
        response.headers["x-request-id"] = id
    return response
