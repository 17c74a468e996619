"""Strategies from a list of names or from YAML. An unknown key is an error."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headway.core.policies.chunk import Chunk, Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.mix import MIXES
from headway.core.policies.order import ORDERS
from headway.core.policies.policies import Policies
from headway.errors import SettingError
from headway.strategies.registry import REGISTRY, StrategyInputs, find_strategy
from headway.strategies.strategy import SLOTS, Strategy
from headway.yaml_values import known, mapping, number, read_yaml, whole, wholes

JOINS = {
    "static": ("size", "buckets", "together"),
    "dynamic": ("size", "window", "windows", "buckets"),
    "length-classes": ("size", "bounds", "window"),
    "continuous": ("size",),
}
PARTS = ("rule", "join", "order", "mix", "chunk", "step_tokens")

StrategyMaker = Callable[[StrategyInputs], Strategy]


def read_strategies(wanted: str) -> dict[str, StrategyMaker]:
    """Strategies by name, from a comma-separated list of names or a YAML file."""
    if wanted.endswith((".yaml", ".yml")):
        return read_strategy_file(Path(wanted))
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if not names:
        raise SettingError(f"name at least one strategy; there are {', '.join(REGISTRY)}")
    if len(set(names)) < len(names):
        raise SettingError(f"a strategy is named twice: {wanted}")
    return {name: find_strategy(name) for name in names}


def read_strategy_file(path: Path) -> dict[str, StrategyMaker]:
    """Strategies of a YAML file: a mapping of names to parts.

    A name of the registry may stand without parts.
    """
    makers = dict[str, StrategyMaker]()
    for name, parts in read_yaml(path).items():
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
    """A strategy of its parts, as YAML has them.

    slots: of the running batch, where the parts do not say.
    """
    where = f"{file}: {name}"
    known(parts, PARTS, where)
    join = _join(parts.get("join", "continuous"), where, slots)
    chunk = _chunk(parts.get("chunk", "whole"), where)
    room = SLOTS * 2_048 if not isinstance(join, Continuous) else max(512, 2 * slots)
    policies = Policies(
        join=join,
        order=_one(parts.get("order", "first-come"), ORDERS, f"{where}: order"),
        mix=_one(parts.get("mix", "mixed"), MIXES, f"{where}: mix"),
        chunk=chunk,
        step_tokens=whole(parts.get("step_tokens", room), f"{where}: step_tokens", 1),
    )
    return Strategy(name, str(parts.get("rule", f"as {file} says")), policies)


def _join(value: Any, where: str, slots: int) -> Join:
    name, fields = _choice(value, JOINS, f"{where}: join")
    where = f"{where}: {name}"
    known(fields, JOINS[name], where)
    usual = slots if name == "continuous" else min(SLOTS, slots)
    size = whole(fields.get("size", usual), f"{where}: size", 1)
    buckets = wholes(fields.get("buckets", ()), f"{where}: buckets")
    if name == "continuous":
        return Continuous(size)
    if name == "static":
        together = fields.get("together", False)
        if not isinstance(together, bool):
            raise SettingError(f"{where}: together is {together!r}, not true or false")
        return Static(size, buckets, together)
    window = number(fields.get("window", 0), f"{where}: window")
    if name == "length-classes":
        bounds = wholes(fields.get("bounds", ()), f"{where}: bounds")
        return LengthClasses(size, bounds, round(window * 1e6))
    windows = mapping(fields.get("windows", {}), f"{where}: windows")
    each = {
        str(lane): round(number(ms, f"{where}: windows: {lane}") * 1e6)
        for lane, ms in windows.items()
    }
    return Dynamic(size, round(window * 1e6), each, buckets)


def _chunk(value: Any, where: str) -> Chunk:
    name, fields = _choice(value, ("whole", "fixed"), f"{where}: chunk", scalar=True)
    if name == "whole":
        return Whole()
    return Fixed(whole(fields, f"{where}: chunk: fixed", 1))


def _choice(
    value: Any, choices: Collection[str], where: str, scalar: bool = False
) -> tuple[str, Any]:
    """The name and fields of a value that is `name` or `name: fields`."""
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        raise SettingError(f"{where}: name one of {', '.join(choices)}")
    ((name, fields),) = value.items()
    known([str(name)], choices, where)
    return str(name), fields if scalar else mapping(fields or {}, f"{where}: {name}")


def _one(value: Any, choices: Mapping[str, Any], where: str) -> Any:
    known([str(value)], choices, where)
    return choices[str(value)]
