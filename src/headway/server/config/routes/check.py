"""Check the names in routes that refer to models, other routes, lanes and tenants."""

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from headway.errors import did_you_mean
from headway.server.config.references import no_lane
from headway.server.config.routes.settings import RouteSettings, check_name
from headway.server.config.sections.models import ModelSettings
from headway.server.config.sections.section import SettingAtError, placed_at

Routes = Mapping[str, RouteSettings]


def check_routes(
    routes: Routes,
    models: Sequence[ModelSettings],
    lanes: Collection[str],
    tenants: Collection[str],
) -> None:
    """Check the routes. Raises SettingError. tenants: the keys' tenants; empty: there are no keys,
    and the only tenant has no name."""
    taken = {name: model.served_name for model in models for name in model.names}
    functions = {model.served_name for model in models if model.function}
    for name, route in routes.items():
        with placed_at("routes", name):
            check_name(name)
        if name in taken:
            why = f"{name!r} is a name of the model {taken[name]}, too"
            raise SettingAtError(("routes", name), why)
        known = [*(set(taken) - functions), *routes]
        for target in route.targets:
            if target in functions:
                why = f"{target!r} is a function, and a route asks models"
                raise SettingAtError(("routes", name, route.kind), why)
            if target not in known:
                why = f"there is no model and no route {target!r}{did_you_mean(target, known)}"
                raise SettingAtError(("routes", name, route.kind), why)
        _check_rules(name, route, lanes, tenants)
    try:
        in_order(routes)
    except CycleError as error:
        way = [*reversed(error.args[1])]
        why = f"it leads back to itself: {' -> '.join(way)}"
        raise SettingAtError(("routes", way[0]), why) from None


def in_order(routes: Routes) -> list[str]:
    """The routes' names, each after the routes that it asks. Raises CycleError."""
    asks = {
        name: [each for each in route.targets if each in routes] for name, route in routes.items()
    }
    return [*TopologicalSorter(asks).static_order()]


def _check_rules(
    name: str, route: RouteSettings, lanes: Collection[str], tenants: Collection[str]
) -> None:
    for at, rule in enumerate(route.rules):
        where = ("routes", name, "rules", at)
        for lane in rule.lanes:
            if lane not in lanes:
                raise SettingAtError((*where, "lanes"), no_lane(lane, lanes))
        for tenant in rule.tenants:
            if tenant not in tenants:
                hint = did_you_mean(tenant, tenants) if tenants else ": there are no keys"
                raise SettingAtError((*where, "tenants"), f"there is no tenant {tenant!r}{hint}")
