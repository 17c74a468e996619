"""A change to a recorded run's settings: another strategy, or single keys."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from headway.commands.replay.rerun import Rerun
from headway.core.cost.features import NONE, row_features
from headway.core.cost.step_cost import StepCost
from headway.core.policies.defer import DEFERS
from headway.core.policies.join import Dynamic, LengthClasses
from headway.core.policies.mix import MIXES
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.settings import Settings
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.strategies.from_yaml import read_strategies
from headway.strategies.parts import (
    PREEMPTS,
    RELEGATES,
    read_chunk,
    read_named,
    read_order,
)
from headway.strategies.registry import STEP_TOKENS
from headway.strategies.resized import with_chunk, with_slots
from headway.strategies.strategy import SLOTS
from headway.strategies.strategy_inputs import StrategyInputs
from headway.yaml_values import known, load_yaml, number, whole

LAST = "step_tokens"  # applied last, because it is checked against the slots
LONGEST = 1 << 20  # the context in tokens that a strategy gets if the journal has no limit


@dataclass(frozen=True, slots=True)
class Change:
    """The change that `--strategy` and `--set` ask for."""

    strategy: str = ""  # a name, or a YAML file with one strategy; empty: the recorded one
    keys: Mapping[str, Any] = field(default_factory=dict)  # of KEYS

    def apply(self, rerun: Rerun, cost: StepCost) -> Settings:
        """The recorded settings with this change."""
        settings = rerun.recording.settings
        if not settings.cost.is_known:  # policies predict with the model that prices the steps
            settings = replace(settings, cost=cost)
        if self.strategy:
            settings = replace(settings, policies=_policies(self.strategy, rerun, cost))
        if LAST in self.keys:  # lift the recorded limit until the slots are set
            settings = _policy(settings, step_tokens=NEVER)
        for key in sorted(self.keys, key=LAST.__eq__):
            settings = KEYS[key](settings, self.keys[key], f"--set {key}")
        return settings

    def __str__(self) -> str:
        keys = [f"{key}={value}" for key, value in self.keys.items()]
        return ", ".join([self.strategy, *keys] if self.strategy else keys)


def parse_change(strategy: str, sets: Iterable[str]) -> Change:
    """Parse `--strategy` and `--set key=value`. SettingError for an unknown or repeated key."""
    keys = dict[str, Any]()
    for each in sets:
        key, equals, value = each.partition("=")
        known([key], KEYS, "--set")
        if not equals or not value:
            raise SettingError(f"--set {each}: write {key}=VALUE")
        if key in keys:
            raise SettingError(f"--set {key} is given twice")
        try:
            keys[key] = load_yaml(value)
        except yaml.YAMLError as error:
            raise SettingError(f"--set {each}: the value is not valid YAML") from error
    return Change(strategy, keys)


def _policies(wanted: str, rerun: Rerun, cost: StepCost) -> Policies:
    """The strategy's policies for the recorded endpoints and prompts."""
    makes = read_strategies(wanted)
    if len(makes) != 1:
        raise SettingError(
            f"--strategy {wanted} names {len(makes)} strategies, give one: {', '.join(makes)}"
        )
    settings = rerun.recording.settings
    prompts = sorted(len(request.prompt) for request in rerun.requests.values())
    recorded = settings.policies.slots
    slots = recorded if recorded > 1 else SLOTS  # one at a time says nothing of the engine's slots
    price, context = _price(cost, slots), min(settings.context, LONGEST)
    site = StrategyInputs(settings.lanes, price, context, prompts, slots=slots)
    return makes.popitem()[1](site).policies


def _price(cost: StepCost, slots: int) -> TokenCost:
    """The price of a token in a step full of prompts, and in one full of decodes."""
    answer = sum([row_features(STEP_TOKENS, 1, 1)] * slots, NONE)
    return TokenCost(
        cost.predict(row_features(0, STEP_TOKENS, 1)) / STEP_TOKENS, cost.predict(answer) / slots
    )


# -- one function per key. Arguments: the settings, the value, where it was given (for errors).


def _policy(settings: Settings, **parts: Any) -> Settings:
    return replace(settings, policies=replace(settings.policies, **parts))


def _slots(settings: Settings, value: Any, where: str) -> Settings:
    return replace(settings, policies=with_slots(settings.policies, whole(value, where, 1)))


def _window(settings: Settings, value: Any, where: str) -> Settings:
    join = settings.policies.join
    if not isinstance(join, Dynamic | LengthClasses):
        raise SettingError(
            f"{where}: {type(join).__name__} has no window; name a --strategy that has one"
        )
    window = round(number(value, where) * 1e6)
    if isinstance(join, Dynamic):  # one window for all lanes
        return _policy(settings, join=replace(join, window=window, windows={}, lows={}))
    return _policy(settings, join=replace(join, window=window))


def _chunk(settings: Settings, value: Any, where: str) -> Settings:
    """Set the chunk. value: a number of tokens, or what a strategy file may have."""
    if isinstance(value, str | dict):
        return _policy(settings, chunk=read_chunk(value, where))
    return replace(settings, policies=with_chunk(settings.policies, whole(value, where, 1)))


def _order(settings: Settings, value: Any, where: str) -> Settings:
    return _policy(settings, order=read_order(value, where))


def _preempt(settings: Settings, value: Any, where: str) -> Settings:
    return _policy(settings, preempt=read_named(value, PREEMPTS, where))


def _defer(settings: Settings, value: Any, where: str) -> Settings:
    return _policy(settings, defer=read_named(value, DEFERS, where))


def _relegate(settings: Settings, value: Any, where: str) -> Settings:
    return _policy(settings, relegate=read_named(value, RELEGATES, where))


def _mix(settings: Settings, value: Any, where: str) -> Settings:
    known([str(value)], MIXES, where)
    return _policy(settings, mix=MIXES[str(value)])


def _step_tokens(settings: Settings, value: Any, where: str) -> Settings:
    return _policy(settings, step_tokens=whole(value, where, 1))


def _num_blocks(settings: Settings, value: Any, where: str) -> Settings:
    return replace(settings, num_blocks=whole(value, where, 1))


KEYS: dict[str, Callable[[Settings, Any, str], Settings]] = {
    "slots": _slots,
    "step_tokens": _step_tokens,
    "chunk": _chunk,
    "order": _order,
    "mix": _mix,
    "preempt": _preempt,
    "defer": _defer,
    "relegate": _relegate,
    "window": _window,
    "num_blocks": _num_blocks,
}
