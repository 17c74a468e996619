"""Check the names in settings that refer to lanes, keys, models and functions."""

import sys
from collections.abc import Collection, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from headway.errors import SettingError, did_you_mean
from headway.server.config.ledger.caps import CapSettings
from headway.server.config.sections.engine import EngineSettings
from headway.server.config.sections.keys import KeySettings, weights_of
from headway.server.config.sections.models import ModelSettings
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.sections.section import SettingAtError


def no_lane(name: str, lanes: Collection[str]) -> str:
    """The error message for an unknown lane."""
    return f"there is no lane {name!r}{did_you_mean(name, lanes)}"


def check_named_lanes(default: str, jobs: str, lanes: Collection[str]) -> None:
    """Raise SettingAtError if the default lane, or the lane of jobs, does not exist."""
    for where, lane in ((("server", "default_lane"), default), (("jobs", "lane"), jobs)):
        if lane not in lanes:
            raise SettingAtError(where, no_lane(lane, lanes))


def check_keys(
    keys: Sequence[KeySettings],
    lanes: Collection[str],
    models: Collection[str],
    scraper: str,
    *,
    count: bool,
) -> None:
    """Check the keys and the names in them. Raises SettingError.

    models: names that a key's `models` may list. scraper: the key that may read metrics; empty:
    any. count: whether weights have an effect.
    """
    for field in ("name", "sha256"):
        values = [getattr(key, field) for key in keys]
        if len(set(values)) < len(values):
            raise SettingAtError(("keys",), f"two have the same {field}")
    weights_of(keys, count=count)
    names = [key.name for key in keys]
    if scraper and scraper not in names:
        why = f"there is no key {scraper!r}{did_you_mean(scraper, names)}"
        raise SettingAtError(("metrics", "key"), why if names else f"{why}none")
    for at, key in enumerate(keys):
        for lane in (*key.lanes, key.default_lane, *key.caps.lanes):
            if lane and lane not in lanes:
                raise SettingAtError(("keys", at), f"{key.name}: {no_lane(lane, lanes)}")
        for model in key.models:
            if model not in models:
                why = f"there is no model {model!r}{did_you_mean(model, models)}"
                raise SettingAtError(("keys", at, "models"), why)


def check_function_keys(
    keys: Sequence[KeySettings], functions: Collection[str], others: Collection[str]
) -> None:
    """Raise SettingAtError for limits that could not limit calls of functions, which have no tokens
    and no price. functions: the functions' names. others: the names of models and routes."""
    for at, key in enumerate(keys):
        usable = [each for each in functions if each in key.models or not key.models]
        if not usable:
            continue
        if key.caps.cap_money:
            why = (
                f"{key.name}: calls of the function {usable[0]} have no price, so no cap on "
                "money counts them; give the key `models` without functions"
            )
            raise SettingAtError(("keys", at, "caps"), why)
        has_others = bool(set(key.models) & set(others)) if key.models else bool(others)
        if key.caps != CapSettings() and not has_others:
            why = f"{key.name}: it may call functions alone, and they have no max_tokens and no n"
            raise SettingAtError(("keys", at, "caps"), why)
        if key.tokens_per_minute and not has_others:
            why = f"{key.name}: it may call functions alone, and they have no tokens"
            raise SettingAtError(("keys", at, "tokens_per_minute"), why)


def check_functions_alone(
    engine: EngineSettings, models: Sequence[ModelSettings], prices: PriceSettings
) -> None:
    """Raise SettingAtError for settings that have no effect because all entries are functions."""
    for name in sorted(engine.model_fields_set - {"restart"}):
        raise SettingAtError(("engine", name), "is for checkpoints, not for functions")
    for at, model in enumerate(models):
        if model.memory is not None:
            why = "it keeps memory free beside checkpoints, and only functions are served"
            raise SettingAtError(("models", at, "memory"), why)
    if prices.charges_tokens:
        why = "functions have no tokens: of the prices, only per_hour applies"
        raise SettingAtError(("prices",), why)


def check_models(models: Sequence[ModelSettings]) -> None:
    """Raise SettingError if two entries share a name, or if memory shares sum to more than 1."""
    if not models:
        raise SettingAtError(("models",), "at least one is needed")
    owners: dict[str, int] = {}
    for at, model in enumerate(models):
        for name in dict.fromkeys((*model.names, *model.engine_names)):
            if (other := owners.setdefault(name, at)) != at:
                raise SettingAtError(("models", at), f"{name!r} is a name of models[{other}], too")
    if (
        total := sum(each.memory.share * each.replicas for each in models if each.memory)
    ) > 1 + 1e-9:
        raise SettingAtError(
            ("models",), f"the shares of memory come to {total:g}, which is more than all of it"
        )


def check_function(target: str) -> str:
    """Return a note on a function. Raises SettingError if its module does not exist. Only the
    process that calls it imports the module."""
    module = target.partition(":")[0]
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    if not _is_found(module):
        raise SettingError(f"there is no module {module}")
    return f"{target} is imported only when the server starts"


def _is_found(module: str) -> bool:
    """Whether there is a module. find_spec() of a module in a package would import the package."""
    package, *inner = module.split(".")
    if package == "__main__" or module in sys.modules:
        return package != "__main__"
    found = find_spec(package)
    for name in inner:
        if found is None or found.submodule_search_locations is None:
            return False
        found = PathFinder.find_spec(name, [*found.submodule_search_locations])
    return found is not None
