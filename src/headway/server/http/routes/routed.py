"""GET /v1/routes: each route's configuration and its recent decisions for the caller's tenant."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from headway.routing.decision import AttemptRow, DecisionRow
from headway.server.http.openapi import responses
from headway.server.intake.routing.decisions import Decisions
from headway.server.intake.routing.routes import ServedRoute
from headway.server.intake.service import Service

SHOWN = 20  # the latest decisions shown per route


def routing_routes(service: Service) -> APIRouter:
    """The path that describes routes. Without routes its list is empty."""
    router = APIRouter(tags=["state"])

    @router.get("/v1/routes", responses=responses(401))
    async def routes(request: Request) -> JSONResponse:
        """The routes that the key may use, and what its tenant's latest requests were decided."""
        tenant = service.authenticate(request.headers).tenant
        data = []
        if service.routes:
            decisions = service.routes.decisions
            for route in service.models.usable_routes(tenant):
                data.append(_state(route, decisions, tenant.name))
        return JSONResponse({"object": "list", "data": data})

    return router


def _state(route: ServedRoute, decisions: Decisions, tenant: str) -> dict[str, Any]:
    rows = [row for row in decisions.rows[route.name] if row.tenant == tenant]
    return {
        "id": route.name,
        "object": "route",
        "kind": route.settings.kind,
        "streams": route.route.streams,
        "settings": route.settings.shown_to(tenant),
        "decisions": len(rows),
        "shares": _shares(rows),
        "unanswered": sum([row.winner < 0 for row in rows]),
        "attempts": sum([each.span > 0 for row in rows for each in row.attempts]),
        "device_ms": _ms(sum([row.nanoseconds for row in rows])),
        "wasted_ms": _ms(sum([row.wasted for row in rows])),
        "saved_ms": _saved(rows),
        "latest": [_decision(row) for row in rows[: -SHOWN - 1 : -1]],
    }


def _shares(rows: Sequence[DecisionRow]) -> dict[str, float]:
    """Each target's share of the answers, the largest first."""
    won = Counter([row.attempts[row.winner].target for row in rows if row.winner >= 0])
    return {target: round(count / won.total(), 4) for target, count in won.most_common()}


def _saved(rows: Sequence[DecisionRow]) -> dict[str, float]:
    """Device time saved against asking the last target alone, by the basis of the comparison."""
    found = Counter[str]()
    for row in rows:
        found[row.baseline.basis.value] += row.saved_nanoseconds
    return {basis: _ms(saved) for basis, saved in sorted(found.items()) if basis != "unknown"}


def _decision(row: DecisionRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "lane": row.lane,
        "target": row.attempts[row.winner].target if row.winner >= 0 else None,
        "accepted": row.accepted,
        "error": row.error or None,
        "e2e_ms": _ms(row.e2e),
        "device_ms": _ms(row.nanoseconds),
        "attempts": [_attempt(each) for each in row.attempts],
    }


def _attempt(row: AttemptRow) -> dict[str, Any]:
    return {
        "target": row.target,
        "why": row.why.value,
        "words": row.words,
        "outcome": row.outcome.value,
        "verdict": row.verdict or None,
        "error": row.error or None,
        "ms": _ms(row.span),
        "device_ms": _ms(row.nanoseconds),
        "measured": row.is_measured,
    }


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)
