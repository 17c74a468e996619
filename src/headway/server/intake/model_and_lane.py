"""Which model and which lane a request means, by what it says and what its key may use."""

from collections.abc import Collection

from headway.server.config.tenant import Tenant
from headway.server.protocol.problem import Problem, wrong

UNSAID = frozenset({"", "auto", "default"})  # service tiers that leave it to the server


def model_of(requested: str, names: Collection[str], lanes: Collection[str]) -> tuple[str, str]:
    """The model's name as the caller knows it, and the lane of `name@lane`. Raises Problem.

    names: that the caller may use; the first one is meant where none is requested.
    """
    if not names:
        raise Problem(404, "there is no model here for this key", "model", "model_not_found")
    if not requested:
        return next(iter(names)), ""
    if requested in names:
        return requested, ""
    name, mark, lane = requested.rpartition("@")
    if mark and name in names and lane in lanes:
        return name, lane
    known = ", ".join(names)
    raise Problem(
        404, f"there is no model {requested[:200]!r}; there is {known}", "model", "model_not_found"
    )


def lane_of(header: str, tier: str, alias: str, tenant: Tenant, lanes: Collection[str]) -> str:
    """The lane that is named first by: the header, service_tier, `model@lane`, the key's default.

    Raises Problem for a lane that does not exist or that the key may not use.
    """
    named = (("x-headway-lane", header), ("service_tier", "" if tier in UNSAID else tier))
    for field, name in (*named, ("model", alias)):
        if not name:
            continue
        if name not in lanes:
            known = ", ".join(lanes)
            raise wrong(
                f"there is no lane {name[:200]!r}; there are {known}", field, "no_such_lane"
            )
        if name not in tenant.lanes:
            raise Problem(403, f"this key may not use the lane {name!r}", field, "lane_not_allowed")
        return name
    return tenant.default_lane
