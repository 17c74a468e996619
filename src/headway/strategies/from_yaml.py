"""Strategies from a list of names or from YAML. An unknown key is an error."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headway.core.policies.by_slack import BySlack
from headway.core.policies.defer import DEFERS
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.mix import MIXES
from headway.core.policies.policies import Policies
from headway.errors import SettingError
from headway.strategies.parts import (
    PREEMPTS,
    RELEGATES,
    choice,
    named,
    read_bool,
    read_chunk,
    read_fair,
    read_memory,
    read_named,
    read_order,
)
from headway.strategies.registry import LONG_STEP, REGISTRY, find_strategy
from headway.strategies.strategy import SLOTS, Strategy
from headway.strategies.strategy_inputs import StrategyInputs
from headway.strategies.window import read_window
from headway.yaml_values import known, mapping, read_yaml, whole, wholes

JOINS = {
    "static": ("size", "buckets", "together"),
    "dynamic": ("size", "window", "windows", "buckets"),
    "length-classes": ("size", "bounds", "window", "pad_to_bound"),
    "continuous": ("size",),
}
PARTS = (
    *("rule", "join", "order", "mix", "chunk", "step_tokens"),
    *("preempt", "defer", "relegate", "memory", "fair"),
)
# Parts that do not apply to an exclusive group, whose members keep their slots until it ends.
NOT_IN_GROUPS = {
    "chunk": ("slack",),
    "preempt": ("by-lane",),
    "defer": ("without-deadline", "time-to-spare"),
}

StrategyMaker = Callable[[StrategyInputs], Strategy]


def read_strategies(wanted: str) -> dict[str, StrategyMaker]:
    """Read strategies by name, from a comma-separated list of names or a YAML file."""
    if wanted.endswith((".yaml", ".yml")):
        return read_strategy_file(Path(wanted))
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if not names:
        raise SettingError(f"name at least one strategy; there are {', '.join(REGISTRY)}")
    if len(set(names)) < len(names):
        raise SettingError(f"a strategy is named twice: {wanted}")
    return {name: find_strategy(name) for name in names}


def read_strategy_file(path: Path) -> dict[str, StrategyMaker]:
    """Read the strategies of a YAML file, which maps names to parts.

    A name in the registry may have no parts.
    """
    makers = dict[str, StrategyMaker]()
    if not (plain := read_yaml(path)):
        raise SettingError(f"{path.name} has no strategies")
    for name, parts in plain.items():
        if parts is None:
            makers[str(name)] = find_strategy(str(name))
            continue
        arguments = (str(name), mapping(parts, f"{path.name}: {name}"), path.name)
        strategy_from_parts(*arguments)  # refused here, before the inputs are known
        makers[str(name)] = partial(_at_site, *arguments)
    return makers


def _at_site(name: str, parts: Mapping[str, Any], file: str, inputs: StrategyInputs) -> Strategy:
    return strategy_from_parts(name, parts, file, inputs.slots)


def strategy_from_parts(
    name: str, parts: Mapping[str, Any], file: str = "strategies", slots: int = SLOTS
) -> Strategy:
    """Make a strategy from its parts, as in the YAML.

    slots: slots of the running batch, if the parts do not give a size.
    """
    where = f"{file}: {name}"
    known(parts, PARTS, where)
    join = _join(parts.get("join", "continuous"), where, slots)
    if not isinstance(join, Continuous):
        _refuse_in_groups(parts, where)
    chunk = read_chunk(parts.get("chunk", "whole"), f"{where}: chunk")
    room = SLOTS * 2_048 if not isinstance(join, Continuous) else max(512, 2 * slots)
    if isinstance(chunk, BySlack):
        room = (join.size if isinstance(join, Continuous) else slots) + LONG_STEP
    order = read_order(parts.get("order", "first-come"), f"{where}: order")
    read = {
        "order": read_fair(order, parts.get("fair", False), f"{where}: fair"),
        "mix": read_named(parts.get("mix", "mixed"), MIXES, f"{where}: mix"),
        "preempt": read_named(parts.get("preempt", "youngest"), PREEMPTS, f"{where}: preempt"),
        "defer": read_named(parts.get("defer", "nobody"), DEFERS, f"{where}: defer"),
        "relegate": read_named(parts.get("relegate", "keep"), RELEGATES, f"{where}: relegate"),
        "memory": read_memory(parts.get("memory", "now"), f"{where}: memory"),
        "step_tokens": whole(parts.get("step_tokens", room), f"{where}: step_tokens", 1),
    }
    policies = named(lambda: Policies(join=join, chunk=chunk, **read), where)
    return Strategy(name, str(parts.get("rule", f"as {file} says")), policies)


def _refuse_in_groups(parts: Mapping[str, Any], where: str) -> None:
    for part, names in NOT_IN_GROUPS.items():
        given = parts.get(part)
        name = next(iter(given), None) if isinstance(given, dict) else given
        if name in names:
            raise SettingError(f"{where}: {part}: {name} goes with join: continuous, not in groups")


def _join(value: Any, where: str, slots: int) -> Join:
    name, fields = choice(value, JOINS, f"{where}: join")
    where = f"{where}: {name}"
    known(fields, JOINS[name], where)
    usual = slots if name == "continuous" else min(SLOTS, slots)
    least, size = _size(fields.get("size", usual), where, follows=name == "dynamic")
    buckets = wholes(fields.get("buckets", ()), f"{where}: buckets")
    if name == "continuous":
        return Continuous(size)
    if name == "static":
        together = read_bool(fields.get("together", False), f"{where}: together")
        return Static(size, buckets, together)
    window = read_window(fields.get("window", 0), f"{where}: window")
    if name == "length-classes":
        if window.follows:
            raise SettingError(f"{where}: its window is one time, and follows no load")
        bounds = wholes(fields.get("bounds", ()), f"{where}: bounds")
        pad = read_bool(fields.get("pad_to_bound", False), f"{where}: pad_to_bound")
        return named(lambda: LengthClasses(size, bounds, window.high, pad), where)
    own = mapping(fields.get("windows", {}), f"{where}: windows")
    windows = {"": window} | {
        str(lane): read_window(value, f"{where}: windows: {lane}") for lane, value in own.items()
    }
    lows = {lane: each.low for lane, each in windows.items() if each.follows}
    highs = {lane: each.high for lane, each in windows.items() if lane}
    return named(lambda: Dynamic(size, window.high, highs, buckets, least, lows), where)


def _size(value: Any, where: str, *, follows: bool) -> tuple[int, int]:
    """The least and the greatest size. The least is 0 if the size is fixed."""
    if not (follows and isinstance(value, dict)):
        return 0, whole(value, f"{where}: size", 1)
    known(value, ("between",), f"{where}: size")
    both = wholes(value.get("between", ()), f"{where}: size: between")
    if len(both) != 2:
        raise SettingError(f"{where}: size: between is two numbers, not {len(both)}")
    return both[0], both[1]
