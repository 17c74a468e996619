"""/v1/versions: list versions; propose, try, promote, roll back and reject them."""

from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse

from headway.errors import SettingError
from headway.server.config.tenant import Tenant
from headway.server.http.body import BodyReader
from headway.server.http.openapi import request_of, responses
from headway.server.intake.service import Service
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.reading import read
from headway.server.versions.bodies import ProposeBody, StartBody, WhyBody
from headway.server.versions.keeper import NOBODY, VersionKeeper
from headway.server.versions.keepers import VersionKeepers
from headway.store.database import StoreError
from headway.store.versions import StoredVersion, VersionConflictError

VERSIONS = "/v1/versions"
MOST_BODY = 256 << 10
BODIES: list[type[BaseModel]] = [ProposeBody, StartBody, WhyBody]
CHANGES = responses(400, 401, 403, 404, 408, 409, 413, 415, 503)
Body = TypeVar("Body", bound=BaseModel)


class _Asked:
    """Reads a request's caller and body."""

    def __init__(self, keepers: VersionKeepers, bodies: BodyReader) -> None:
        self._keepers, self._bodies = keepers, bodies

    def caller(self, request: Request) -> Tenant:
        """The caller's tenant. Raises Problem unless it may change versions."""
        service = self._keepers.service
        tenant = service.keys.caller(request.headers)
        if not may_see(service, tenant):
            why = "this key may not see or change versions: its entry needs `admin: true`"
            if service.keys.is_open:
                why = (
                    "without keys, only a server that listens on loopback shows versions: give "
                    "this one a key with `admin: true`"
                )
            raise Problem(403, why, code="admin_needed")
        return tenant

    def author(self, request: Request) -> str:
        """The name of the caller's key, or NOBODY. Raises Problem unless it may change versions."""
        return self.caller(request).key or NOBODY

    async def body(self, request: Request, kind: type[Body]) -> Body:
        """The request's body. Raises Problem."""
        async with self._bodies.read(request, MOST_BODY) as raw:
            return read(kind, raw or b"{}")


def version_routes(keepers: VersionKeepers, bodies: BodyReader) -> APIRouter:
    """The router of /v1/versions. Every path needs a key with `admin`. Without keys, the server
    must be reachable from its own machine alone."""
    router, asked = APIRouter(tags=["versions"]), _Asked(keepers, bodies)
    caller, author, body_of = asked.caller, asked.author, asked.body

    @router.get(VERSIONS, responses=responses(401, 403, 503))
    async def versions(request: Request, model: str = "") -> JSONResponse:
        """A model's by number, which is in force, and how far a trial is. Default: the first
        model's."""
        caller(request)
        return JSONResponse(await _told(listed(_keeper(keepers, model))))

    @router.post(VERSIONS, responses=CHANGES, openapi_extra=request_of(ProposeBody))
    async def propose(request: Request) -> JSONResponse:
        """Propose a change of the promoted version."""
        by = author(request)
        body = await body_of(request, ProposeBody)
        made = await _told(_keeper(keepers, body.model).propose(body, by))
        return JSONResponse(version_object(made))

    @router.get(f"{VERSIONS}/{{number}}", responses=responses(400, 401, 403, 404, 503))
    async def version(request: Request, number: int) -> JSONResponse:
        """One of them, with all that happened to it."""
        caller(request)
        return found(await _told(keepers.find(number)), number)

    @router.post(
        f"{VERSIONS}/{{number}}/start", responses=CHANGES, openapi_extra=request_of(StartBody)
    )
    async def start(request: Request, number: int) -> JSONResponse:
        """Begin its trial against the promoted version."""
        by = author(request)
        body = await body_of(request, StartBody)
        keeper = await _of_version(keepers, number)
        return found(await _told(keeper.start(number, body, by)), number)

    _add_ends(router, asked, keepers)
    return router


def may_see(service: Service, tenant: Tenant) -> bool:
    """Whether this tenant may see and change versions."""
    is_open = service.keys.is_open and not service.config.server.is_exposed
    return tenant.is_admin or is_open


async def listed(keeper: VersionKeeper) -> dict[str, Any]:
    """A model's versions, the one in force, and the state of a trial. Raises StoreError."""
    found = await keeper.ask(keeper.versions.all, keeper.model)
    data = [summary(each) for each in found]
    return {"object": "list", "model": keeper.model, "data": data, **present(keeper)}


def _keeper(keepers: VersionKeepers, model: str) -> VersionKeeper:
    """The keeper of a model; empty: of the first one. Raises Problem."""
    try:
        return keepers.of_model(model)
    except SettingError as error:
        raise Problem(404, str(error), "model", "model_not_found") from error


async def _of_version(keepers: VersionKeepers, number: int) -> VersionKeeper:
    """The keeper of a version's model. Raises Problem."""
    if keeper := await _told(keepers.of_version(number)):
        return keeper
    raise _missing(number)


def _add_ends(router: APIRouter, asked: _Asked, keepers: VersionKeepers) -> None:
    """Add the paths that decide about a version."""
    one, extra = f"{VERSIONS}/{{number}}", request_of(WhyBody)

    async def why(request: Request) -> tuple[str, str]:
        by = asked.author(request)
        return by, (await asked.body(request, WhyBody)).why

    @router.post(f"{one}/promote", responses=CHANGES, openapi_extra=extra)
    async def promote(request: Request, number: int) -> JSONResponse:
        """Put it in force for good."""
        by = await why(request)
        keeper = await _of_version(keepers, number)
        return found(await _told(keeper.promote(number, *by)), number)

    @router.post(f"{one}/rollback", responses=CHANGES, openapi_extra=extra)
    async def rollback(request: Request, number: int) -> JSONResponse:
        """End its trial, or put the version before it in force again."""
        by = await why(request)
        keeper = await _of_version(keepers, number)
        return found(await _told(keeper.roll_back(number, *by)), number)

    @router.post(f"{one}/reject", responses=CHANGES, openapi_extra=extra)
    async def reject(request: Request, number: int) -> JSONResponse:
        """It will not be tried."""
        by = await why(request)
        keeper = await _of_version(keepers, number)
        return found(await _told(keeper.reject(number, *by)), number)


Found = TypeVar("Found")


async def _told(asked: Awaitable[Found]) -> Found:
    """Await a result, and turn its errors into Problems."""
    try:
        return await asked
    except SettingError as error:
        raise wrong(str(error), code="invalid_version") from error
    except VersionConflictError as error:
        raise Problem(409, str(error), code="version_state", final=True) from error
    except StoreError as error:
        raise Problem(503, str(error), code="store_down") from error


def found(version: StoredVersion | None, number: int) -> JSONResponse:
    """The answer with this version. Raises Problem if there is none."""
    if version is None:
        raise _missing(number)
    return JSONResponse(version_object(version))


def _missing(number: int) -> Problem:
    return Problem(404, f"there is no version {number}", "number", "no_such_version")


def summary(version: StoredVersion) -> dict[str, Any]:
    """A version as an entry of the list."""
    content = version.content
    return {
        "object": "version",
        "number": version.number,
        "model": version.model,
        "state": version.state,
        "author": content["author"],
        "reason": content["reason"],
        "created_at": version.created_at,
        "why": version.events[-1].why,
    }


def version_object(version: StoredVersion) -> dict[str, Any]:
    """A version with its whole content and its events."""
    rest = {name: value for name, value in version.content.items() if name not in ("author",)}
    events = [asdict(each) for each in version.events]
    return summary(version) | rest | {"digest": version.digest, "events": events}


def present(keeper: VersionKeeper) -> dict[str, Any]:
    """The versions in force and promoted, and the state of a trial."""
    live = keeper.live
    in_force = keeper.in_force.versions
    told: dict[str, Any] = {
        "in_force": in_force[keeper.in_force.engines[0].name],
        "promoted": keeper.promoted.number,
        "trial": None,
    }
    if len(in_force) > 1:
        told["engines"] = in_force
    if live:
        evidence = [
            {
                "figure": each.guardrail.figure,
                "lane": each.lane,
                "evidence": round(each.evidence, 3),
                "needed": round(live.trial.needed(each), 3),
            }
            for each in list(live.trial.watches)
        ]
        told["trial"] = {"version": live.number, "against": live.control, "pairs": live.trial.pairs}
        told["trial"]["evidence"] = evidence  # logarithms of e-values
    return told
