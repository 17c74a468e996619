"""Models and lanes by name: what a request means, given what its key may use.

Only Models.find decides which engine answers a request.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.server.answering.arrival import Arrival
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import Backend, FunctionBackend
from headway.server.intake.model import Model
from headway.server.intake.replicas import Replicas
from headway.server.intake.routing.routes import ServedRoute
from headway.server.protocol.problem import Problem, wrong

NO_ROUTES: dict[str, ServedRoute] = {}
UNSAID = frozenset({"", "auto", "default"})  # service tiers that leave it to the server


class Found(NamedTuple):
    """What the `model` of a request means."""

    model: Model
    name: str  # as the caller gave it: the model's own name, an alias or an adapter
    lane: str  # from NAME@LANE; empty: none was named
    entry: str  # the entry's own name in `models`, or the route's
    route: ServedRoute | None = None  # the route that answers, by this model or another


class Models:
    """All entries of `models`, in the order of the file. functions, routes: by name."""

    def __init__(
        self,
        entries: Sequence[Replicas],
        functions: Mapping[str, FunctionBackend],
        routes: Mapping[str, ServedRoute] = NO_ROUTES,
    ) -> None:
        self.entries, self.functions, self.routes = tuple(entries), functions, routes
        self._engines = tuple([model for entry in entries for model in entry.models])
        self._by_name = {name: entry for entry in entries for name in entry.names}
        self._names = tuple(self._by_name)

    def __iter__(self) -> Iterator[Model]:
        """Each engine."""
        return iter(self._engines)

    @property
    def first(self) -> Model:
        """The first engine. It answers requests that name no model, if their key may use it."""
        return self._engines[0]

    @property
    def is_one(self) -> bool:
        """Whether there is a single engine and no function."""
        return len(self._engines) == 1 and not self.functions

    @property
    def backends(self) -> dict[str, Backend]:
        """All backends by name: the engines, then the functions."""
        return {each.name: each.engine for each in self._engines} | dict(self.functions)

    def usable(self, tenant: Tenant) -> list[Replicas]:
        """The models that a tenant may use."""
        return [each for each in self.entries if tenant.may_use(each.name)]

    def usable_routes(self, tenant: Tenant) -> list[ServedRoute]:
        """The routes that a tenant may use."""
        return [each for name, each in self.routes.items() if tenant.may_use(name)]

    def find(self, requested: str, lanes: Collection[str], arrival: Arrival) -> Found:
        """The model that a request names; the tenant's first if it names none. Raises Problem."""
        tenant = arrival.tenant
        if requested in self.functions and tenant.may_use(requested):
            why = f"{requested!r} is a function: POST /v1/functions/{requested}"
            raise wrong(why, "model", "not_a_model")
        names: Sequence[str] = self._names
        if tenant.models is not None:
            names = [name for each in self.usable(tenant) for name in each.names]
        routes = [each.name for each in self.usable_routes(tenant)]
        name, lane = model_of(requested, [*names, *routes] if routes else names, lanes)
        if route := self.routes.get(name):
            return Found(route.models[0], name, lane, name, route)
        entry = self._by_name[name]
        return Found(entry.pick(arrival), name, lane, entry.name)


def model_of(requested: str, names: Collection[str], lanes: Collection[str]) -> tuple[str, str]:
    """The model's name as the caller gave it, and the lane of `name@lane`. Raises Problem.

    names: those the caller may use. The first is taken if none is requested.
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
    why = f"there is no model {requested[:200]!r}; there is {', '.join(names)}"
    if mark and name in names:
        why = f"{name!r} has no lane {lane[:200]!r}; there are {', '.join(lanes)}"
    raise Problem(404, why, "model", "model_not_found")


def lane_of(header: str, tier: str, alias: str, tenant: Tenant, lanes: Collection[str]) -> str:
    """The first lane named by, in this order: the header, service_tier, `model@lane`, the key's
    default.

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
