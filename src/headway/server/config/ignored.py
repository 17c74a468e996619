"""Refuse or leave out settings without effect, mostly those of lanes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headway.core.policies.chunk import Whole
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.durations import NONE
from headway.server.config.ledger.ledger import LedgerSettings
from headway.server.config.problems import dotted_path
from headway.server.config.sections.engine import EngineSettings
from headway.server.config.sections.jobs import JobSettings
from headway.server.config.sections.lanes import LaneSettings
from headway.server.config.sections.section import Location, Section, SettingAtError
from headway.server.config.sections.strategy import StrategySettings
from headway.server.config.sources import DEFAULT
from headway.server.config.values import ConfigValues

GROUPLESS = ("slots", "blocks", "step_tokens", "chunk")  # no effect if whole groups run
# of a lane: a function's items have no tokens, no slots and no KV blocks
OF_MODELS = ("tpot", "max_waiting_tokens", "late", "slots.least", "blocks.least")
Strategies = Sequence[StrategySettings]  # of the engines that share the lanes


def is_read(setting: str, strategies: Strategies, *, functions: bool = False) -> bool:
    """Whether this setting of a lane has an effect in at least one engine. functions: whether there
    are functions, too, which go by budgets and then by priority."""
    is_functions = functions and setting == "priority"
    return is_functions or any(_reads(each, setting) for each in strategies)


def _reads(strategy: StrategySettings, setting: str) -> bool:
    takes = strategy.preempt == "by-lane"
    by_deadline = strategy.order == "deadline"
    match setting:
        case "window":
            return strategy.join == "dynamic"
        case "priority":
            return strategy.order == "priority" or by_deadline or takes
        case "late":
            return strategy.relegate == "hopeless"
        case "slots.least" | "blocks.least":  # Policies.keeps_leasts
            return takes or by_deadline or strategy.defer != "nobody"
        case _:
            return strategy.join == "continuous"


def check_lanes(lanes: Mapping[str, LaneSettings], strategies: Strategies) -> None:
    """Raise SettingAtError for a setting that differs from its default and has no effect."""
    joins = " and ".join(dict.fromkeys(each.join for each in strategies)) or "a function"
    for name, lane in lanes.items():
        if lane.window != NEVER and not is_read("window", strategies):
            raise SettingAtError(
                ("lanes", name, "window"),
                f"join {joins} has no window per lane; use engine.strategy: dynamic-lanes",
            )
        for each in GROUPLESS:
            value = getattr(lane, each)
            limited = getattr(value, "between", None) or getattr(value, "most", value) != NEVER
            limited = limited or (each == "step_tokens" and lane.step_tokens.least > 0)
            if limited and not is_read(each, strategies):
                raise SettingAtError(
                    ("lanes", name, each), f"it is for join continuous, not {joins}"
                )


def check_set(
    lanes: Mapping[str, LaneSettings],
    strategies: Strategies,
    origins: Mapping[Location, str],
    *,
    functions: bool,
) -> None:
    """Raise SettingError for a setting that was given explicitly and has no effect. A shipped
    lane's own values are allowed, because other strategies read them. functions: as in is_read."""
    taken = "the strategy keeps nothing for a lane; use engine.strategy: budgets"
    orders = " and ".join(dict.fromkeys(each.order for each in strategies))
    why = {
        "priority": f"the order is {orders}, which no priority changes; use "
        "engine.strategy: priority",
        "late": "the strategy relegates no request; use engine.strategy: budgets",
        "slots.least": taken,
        "blocks.least": taken,
    }
    if not strategies:
        why = dict.fromkeys(OF_MODELS, "it is for models, and only functions are served")
    for name in lanes:
        for setting, reason in why.items():
            origin = origins.get(("lanes", name, *setting.split(".")), DEFAULT)
            if origin != DEFAULT and not is_read(setting, strategies, functions=functions):
                raise SettingError(f"{origin}: lanes.{name}.{setting}: {reason}")


def check_most(
    lanes: Mapping[str, LaneSettings],
    engines: Sequence[Policies],
    origins: Mapping[Location, str],
) -> None:
    """Raise SettingError for a `most` above what every engine has, because it limits nothing."""
    readers = [each for each in engines if not each.in_groups]
    # A whole prompt may exceed the tokens of a step.
    tokens = [NEVER if isinstance(each.chunk, Whole) else each.step_tokens for each in readers]
    wholes = {
        "slots": max([each.slots for each in readers], default=NEVER),
        "step_tokens": max(tokens, default=NEVER),
    }
    for name, lane in lanes.items():
        for setting, field, most in (
            *[("slots", "between", each) for each in lane.slots.between or ()],
            ("slots", "most", lane.slots.most),
            ("step_tokens", "most", lane.step_tokens.most),
        ):
            if wholes[setting] < most < NEVER:
                origin = origins.get(("lanes", name, setting, field), DEFAULT)
                raise SettingError(
                    f"{origin}: lanes.{name}.{setting}.{field}: {most} is more than all "
                    f"{setting}: there are {wholes[setting]}"
                )


def check_overridden(
    config: ConfigValues,
    sources: Iterable[Mapping[str, Any]],
    origin: Callable[[Location], str],
) -> None:
    """Raise SettingError for a setting of the section `engine` that every entry overrides with
    another value.

    sources: the variables and the flags. They override the file, but not what an entry sets.
    """
    for name in [name for each in sources for name in each.get("engine") or ()]:
        entries = [each.engine for each in config.models if not each.function or name == "restart"]
        inherits = any(name not in each.model_fields_set for each in entries)
        value = getattr(config.engine, name)
        if not inherits and any(getattr(each, name) != value for each in entries):
            raise SettingError(
                f"{origin(('engine', name))}: engine.{name} changes nothing: every entry of "
                "models sets its own"
            )


def check_unkept(
    config: ConfigValues, engines: Sequence[EngineSettings], origin: Callable[[Location], str]
) -> None:
    """Raise SettingError for a setting of jobs, ledger or journal that has no place to be kept. A
    default value is allowed, so the shown settings can be read again.

    engines: the settings in force, for each checkpoint.
    """
    _check_kept(("jobs",), config.jobs, "store", [*JobSettings.model_fields], origin)
    _check_kept(("ledger",), config.ledger, "url", [*LedgerSettings.model_fields], origin)
    size = ["journal_bytes"]
    if not any(engine.journal for engine in engines):
        _check_kept(("engine",), config.engine, "journal", size, origin)
    places = [at for at, model in enumerate(config.models) if not model.function]
    for at, engine in zip(places, engines, strict=True):
        if not engine.journal:
            _check_kept(("models", at, "engine"), config.models[at].engine, "journal", size, origin)


def _check_kept(
    where: Location,
    section: Section,
    place: str,
    settings: Sequence[str],
    origin: Callable[[Location], str],
) -> None:
    """Raise SettingError if a section without `place` sets one of these settings."""
    if getattr(section, place):
        return
    for name in settings:
        usual = type(section).model_fields[name].default
        if getattr(section, name) != usual:
            at = (*where, name)
            raise SettingError(
                f"{origin(at)}: {dotted_path(at)} is of no use without "
                f"{dotted_path((*where, place))}"
            )


def own_lanes(
    lanes: Mapping[str, LaneSettings], strategy: StrategySettings
) -> dict[str, LaneSettings]:
    """The lanes without the settings that only engines with other strategies read."""
    fields = LaneSettings.model_fields
    others = [each for each in ("window", *GROUPLESS) if not is_read(each, (strategy,))]
    unset = {each: fields[each].get_default(call_default_factory=True) for each in others}
    return {name: lane.model_copy(update=unset) for name, lane in lanes.items()}


def leave_out_ignored(lane: dict[str, Any], strategies: Strategies, *, functions: bool) -> None:
    """Remove settings without effect from a lane's JSON. functions: as in is_read."""
    if not strategies:
        del lane["tpot"], lane["max_waiting_tokens"]
    for share in ("slots", "blocks"):
        if not is_read(f"{share}.least", strategies):
            del lane[share]["least"]
    if not lane["slots"]["between"]:
        del lane["slots"]["between"]
    if lane["ttft"] == lane["e2e"] == NONE or not is_read("late", strategies):
        del lane["late"]
    for each in ("window", "priority", *GROUPLESS):
        if not is_read(each, strategies, functions=functions):
            del lane[each]
