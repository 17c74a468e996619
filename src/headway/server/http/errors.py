"""Whatever is raised on the way, as OpenAI's nested error body."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from headway.server.observe.access import noted
from headway.server.protocol.problem import Problem

CLIENT_GONE = 499  # nginx's; nobody reads it, but logs do


def install(app: FastAPI) -> None:
    """For all routes, and for the paths and methods that there are not."""
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        Problem: _problem,
        HTTPException: _http,
        ClientDisconnect: _gone,
        Exception: _fault,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def answer(problem: Problem) -> JSONResponse:
    """The access log has its code.

    From here on the problem leads nowhere. How it was raised leads to the frames on the way, and so
    to the request's body and texts; where one of those leads back to the problem, only a full
    collection would free them, and a server with little to do has none for hours.
    """
    noted().code = problem.code
    problem.__traceback__ = problem.__context__ = problem.__cause__ = None
    return JSONResponse(problem.body, problem.status, problem.headers)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return answer(error)


async def _http(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, no such method (whose Allow header stays)."""
    assert isinstance(error, HTTPException)
    asked, code = f"{request.method} {request.url.path[:200]}", ""
    what = f"{asked}: {error.detail}"
    if error.status_code == 404:
        what, code = f"there is no {asked} here; /openapi.json says what there is", "unknown_url"
    said = answer(Problem(error.status_code, what, code=code))
    said.headers.update(error.headers or {})
    return said


async def _gone(request: Request, error: Exception) -> Response:
    """While its body was read."""
    return Response(status_code=CLIENT_GONE)


async def _fault(request: Request, error: Exception) -> Response:
    """Ours. The traceback goes to the log, not to the client. Starlette answers it outside of all
    our middleware, so the request's id is put on here."""
    said = answer(Problem(500, f"the server has failed: {type(error).__name__}", code="fault"))
    if id := request.scope.get("state", {}).get("request_id"):
        said.headers["x-request-id"] = id
    return said
