"""The parts of a strategy as YAML names them: `name`, or `name: fields`.

Unknown names, unknown fields and invalid values raise SettingError; the first two suggest a name.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Chunk, Fixed, Whole
from headway.core.policies.fairly import Fairly
from headway.core.policies.memory import Ahead, Memory, Now
from headway.core.policies.order import ORDERS, Order
from headway.core.policies.preempt import ByLane, Preempt, Youngest
from headway.core.policies.relegate import Hopeless, Keep, Relegate
from headway.errors import SettingError
from headway.yaml_values import known, mapping, number, whole

Made = TypeVar("Made")
DEADLINE = ("patience", "turn", "most_in_time")
SLACK = ("least", "stretch", "sure", "filler", "brisk")
AHEAD, FILLER = "ahead", "filler-ahead"
PREEMPTS: dict[str, Preempt] = {"youngest": Youngest(), "by-lane": ByLane()}
RELEGATES: dict[str, Relegate] = {"keep": Keep(), "hopeless": Hopeless()}


def read_order(value: Any, where: str) -> Order:
    """Read an order: first-come, priority, shortest-first, or deadline with its fields."""
    name, fields = choice(value, (*ORDERS, "deadline"), where)
    where = f"{where}: {name}"
    known(fields, DEADLINE if name == "deadline" else (), where)
    if name != "deadline":
        return ORDERS[name]
    given = dict[str, Any]()
    if "patience" in fields:
        given["patience"] = round(number(fields["patience"], f"{where}: patience") * 1e6)
    if "turn" in fields:
        given["turn"] = whole(fields["turn"], f"{where}: turn", 1)
    if "most_in_time" in fields:
        given["most_in_time"] = read_bool(fields["most_in_time"], f"{where}: most_in_time")
    return ByDeadline(**given)


def read_fair(order: Order, value: Any, where: str) -> Order:
    """The order itself (false), or shared fairly among tenants (true, or weights by tenant)."""
    if not isinstance(value, dict):
        return Fairly(order) if read_bool(value, where) else order
    weights = {str(name): whole(each, f"{where}: {name}") for name, each in value.items()}
    return named(partial(Fairly, order, weights), where)


def read_chunk(value: Any, where: str) -> Chunk:
    """Read a chunk: whole, fixed with its tokens, or slack with its fields."""
    name, fields = choice(value, ("whole", "fixed", "slack"), where, scalar=True)
    where = f"{where}: {name}"
    if name == "fixed":
        return Fixed(whole(fields, where, 1))
    fields = mapping(fields or {}, where)
    known(fields, SLACK if name == "slack" else (), where)
    if name == "whole":
        return Whole()
    given: dict[str, Any] = {
        each: whole(fields[each], f"{where}: {each}", 1)
        for each in ("least", "stretch", "brisk")
        if each in fields
    }
    for each in ("sure", "filler"):
        if each in fields:
            given[each] = number(fields[each], f"{where}: {each}")
    return named(partial(BySlack, **given), where)


def read_memory(value: Any, where: str) -> Memory:
    """Read a memory policy: now, or ahead or filler-ahead with its fields."""
    name, fields = choice(value, ("now", AHEAD, FILLER), where)
    known(fields, ("share", "spread") if name != "now" else (), f"{where}: {name}")
    if name == "now":
        return Now()
    given = {key: number(each, f"{where}: {name}: {key}") for key, each in fields.items()}
    return named(partial(Ahead, timed=name == AHEAD, **given), f"{where}: {name}")


def read_named(value: Any, choices: Mapping[str, Any], where: str) -> Any:
    """Read a part without fields."""
    known([str(value)], choices, where)
    return choices[str(value)]


def read_bool(value: Any, where: str) -> bool:
    """The value, if it is true or false; else SettingError."""
    if not isinstance(value, bool):
        raise SettingError(f"{where} is {value!r}, not true or false")
    return value


def named(make: Callable[[], Made], where: str) -> Made:
    """Return what `make` returns. If it raises SettingError, name the place in the file."""
    try:
        return make()
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error


def choice(
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
