"""make_routes: builds headway.routing's routes from a configuration."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headway.core.request import NEVER
from headway.errors import SettingError, first_line
from headway.routing.cascade import Cascade
from headway.routing.choosing import Cheapest, LeastLoaded
from headway.routing.circuit import CircuitSettings
from headway.routing.ensemble import Best, Chooser, Ensemble, Majority
from headway.routing.fallback import Fallback
from headway.routing.judges import Agreed, Confident, Judge, Valid, follows_schema, matches
from headway.routing.request import RouteAnswer
from headway.routing.route import Route, Rows
from headway.routing.rules import Rule, Rules
from headway.routing.targets.target import Target
from headway.server.config.durations import SECOND
from headway.server.config.routes.accept import AcceptSettings
from headway.server.config.routes.check import in_order
from headway.server.config.routes.settings import RouteSettings
from headway.server.intake.routing.own_thread import OwnThreads

OfText = Callable[[RouteAnswer], Any]  # a coroutine function


def make_routes(
    settings: Mapping[str, RouteSettings], model: Callable[[str], Target], rows: Rows
) -> dict[str, Route]:
    """The routes by name, in the order of the file. model: gives the target for a model's name.
    rows: receives all decision rows. Raises SettingError for a function that cannot be imported."""
    made: dict[str, Route] = {}

    def target(name: str) -> Target:
        return made.get(name) or model(name)

    for name in in_order(settings):
        try:
            made[name] = _make(settings[name], target, {"name": name, "rows": rows})
        except SettingError as error:
            raise SettingError(f"routes.{name}: {error}") from error
    return {name: made[name] for name in settings}


def _make(route: RouteSettings, target: Callable[[str], Target], ends: dict[str, Any]) -> Route:
    targets = [] if route.rules else [target(each) for each in route.targets]
    match route.kind:
        case "rules":
            return Rules(_rules(route, target), **ends)
        case "least_loaded":
            return LeastLoaded(targets, **ends)
        case "cheapest":
            return Cheapest(targets, budget=_seconds(route.budget), **ends)
        case "cascade":
            each = route.accept if isinstance(route.accept, tuple) else (route.accept,)
            judges = [_judge(one) for one in each]
            accept = judges if isinstance(route.accept, tuple) else judges[0]
            speculate, effort = route.speculate, route.best_effort
            return Cascade(targets, accept, speculate=speculate, best_effort=effort, **ends)
        case "ensemble":
            least, quorum = route.least, route.quorum
            return Ensemble(targets, _chooser(route), quorum=quorum, least=least, **ends)
    timeout, settings = route.timeout, route.circuit
    timeouts = timeout if isinstance(timeout, tuple) else (timeout,) * len(targets)
    circuit = None
    if settings != "none":
        circuit = CircuitSettings(settings.failures, _seconds(settings.pause))
    limits = [_seconds(one) for one in timeouts]
    return Fallback(targets, timeout=limits, hedge=route.hedge, circuit=circuit, **ends)


def _rules(route: RouteSettings, target: Callable[[str], Target]) -> list[Rule]:
    return [
        Rule(
            target(each.to),
            each.name,
            each.least_tokens,
            NEVER if each.most_tokens is None else each.most_tokens,
            each.lanes,
            each.tenants,
            each.metadata,
        )
        for each in route.rules
    ]


def _judge(accept: AcceptSettings) -> Judge:
    if accept.confidence is not None:
        return Confident(accept.confidence)
    if accept.regex:
        return matches(accept.regex)
    if accept.json_schema is not None:
        return follows_schema(accept.json_schema)
    if accept.function:
        return Valid(of_text(accept.function), accept.function)
    return Agreed(accept.agree, temperature=accept.temperature)


def _chooser(route: RouteSettings) -> Chooser:
    if route.choose == "majority":
        return Majority()
    return Best(of_text(route.score)) if route.score else Best()


def of_text(name: str) -> OfText:
    """The function module:name, wrapped to take an answer and pass on its text. A function that is
    not a coroutine function runs in a thread. Raises SettingError."""
    function, threads = _import(name), OwnThreads()

    async def called(answer: RouteAnswer) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(answer.text)
        return await threads.call(function, answer.text)

    return called


def _import(name: str) -> Callable[[str], Any]:
    module, _, attribute = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the user's module may raise anything
        raise SettingError(f"{name} cannot be imported: {first_line(error)}") from error
    if not callable(found):
        raise SettingError(f"{name} is no function")
    function: Callable[[str], Any] = found
    return function


def _seconds(nanoseconds: int) -> float:
    """Nanoseconds as seconds; 0 for no limit."""
    return 0.0 if nanoseconds == NEVER else nanoseconds / SECOND
