"""Which model and which lane a request means, by what it says and what its key may use.

Models.find decides which engine answers a request. Nobody else does.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.server.answering.arrival import Arrival
from headway.server.config.tenant import Tenant
from headway.server.engine.handle import Backend
from headway.server.intake.model import Model
from headway.server.intake.replicas import Replicas
from headway.server.intake.routing.routes import ServedRoute
from headway.server.protocol.problem import Problem, wrong

NO_ROUTES: dict[str, ServedRoute] = {}
UNSAID = frozenset({"", "auto", "default"})  # service tiers that leave it to the server


class Found(NamedTuple):
    """What the `model` of a request means."""

    model: Model
    name: str  # as the caller knows it: its own name, an alias or an adapter
    lane: str  # of NAME@LANE; empty: it names none
    entry: str  # that entry of `models`, by its own name
    route: ServedRoute | None = None  # that answers, by this model or another one


class Models:
    """All entries, in the order of the file. functions, routes: by their names."""

    def __init__(
        self,
        entries: Sequence[Replicas],
        functions: Mapping[str, Backend],
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
        """The model of requests that name none, if their key may use it."""
        return self._engines[0]

    @property
    def is_one(self) -> bool:
        """Whether there is a single engine and nothing beside it."""
        return len(self._engines) == 1 and not self.functions

    @property
    def backends(self) -> dict[str, Backend]:
        """What answers, engines and then functions, by their names."""
        return {each.name: each.engine for each in self._engines} | dict(self.functions)

    def usable(self, tenant: Tenant) -> list[Replicas]:
        """The models that a tenant may use."""
        return [each for each in self.entries if tenant.may_use(each.name)]

    def usable_routes(self, tenant: Tenant) -> list[ServedRoute]:
        """The routes that a tenant may use."""
        return [each for name, each in self.routes.items() if tenant.may_use(name)]

    def find(self, requested: str, lanes: Collection[str], arrival: Arrival) -> Found:
        """The model that is meant; the tenant's first one where none is named. Raises Problem."""
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
