"""Encode the values of a journal as JSON, and decode them."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from headway.core.commands import Add, Cancel, Close, Enough, Refuse, Retune, Stop
from headway.core.cost import gathering, step_cost
from headway.core.grammar import Grammar
from headway.core.lane import Budget, Lane, Share
from headway.core.policies import (
    by_deadline,
    by_slack,
    calls,
    chunk,
    defer,
    fairly,
    join,
    memory,
    mix,
    order,
    preempt,
    relegate,
)
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.sampling import Sampling
from headway.core.settings import Settings
from headway.errors import JournalError

TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Settings, Lane, Budget, Share, Policies, Request, Sampling, Grammar),
        *(Add, Refuse, Cancel, Stop, Close, Enough, Retune),
        *(join.Static, join.Dynamic, join.LengthClasses, join.Continuous, calls.Calls),
        *(order.FirstCome, order.Priority, order.ShortestFirst),
        *(
            step_cost.StepCost,
            step_cost.Rates,
            step_cost.Residuals,
            step_cost.Echo,
            step_cost.Rounding,
            gathering.Gathering,
        ),
        *(mix.Mixed, mix.PrefillFirst, mix.Alternate, chunk.Whole, chunk.Fixed, preempt.Youngest),
        *(by_deadline.ByDeadline, by_slack.BySlack, preempt.ByLane, fairly.Fairly),
        *(
            defer.Nobody,
            defer.WithoutDeadline,
            defer.WithTimeToSpare,
            relegate.Keep,
            relegate.Hopeless,
        ),
        *(memory.Now, memory.Ahead),
    )
}


def line(value: Any) -> str:
    """The value as a line of JSON. Only values that JSON cannot represent go through `encode`."""
    return json.dumps(value, default=encode) + "\n"


def encode(value: Any) -> Any:
    """A dataclass as a dict: {"is": its type, and its fields}. Sets are sorted. TypeError for any
    other value."""
    if isinstance(value, frozenset):
        return {"is": "set", "of": sorted(value)}
    if not is_dataclass(value):
        raise TypeError(f"it has no form for a {type(value).__name__}")
    named = {each.name: getattr(value, each.name) for each in fields(value)}
    for name, field_ in named.items():
        if isinstance(field_, Mapping):
            named[name] = {"is": "map", "of": dict(field_)}
    return {"is": type(value).__name__, **named}


def decode(plain: Any, number: int) -> Any:
    """The value that `encode` was given. number: its line. JournalError if it is not valid."""
    if isinstance(plain, list):
        if {*map(type, plain)} <= {int}:  # prompts are long
            return tuple(plain)
        return tuple([decode(each, number) for each in plain])
    if not isinstance(plain, dict):
        return plain
    kind = plain.get("is")
    if kind == "map":
        return {key: decode(each, number) for key, each in plain["of"].items()}
    if kind == "set":
        return frozenset(plain["of"])
    if kind not in TYPES:
        raise JournalError(f"line {number} has a {kind!r}, which this headway does not know")
    named = {key: decode(each, number) for key, each in plain.items() if key != "is"}
    try:
        return TYPES[kind](**named)
    except (TypeError, ValueError) as error:
        raise JournalError(f"line {number} has a {kind} that cannot be made: {error}") from error


def check_types(value: Any) -> None:
    """Raise TypeError if a field does not have the type of its annotation."""
    kind: type = type(value)
    for name, hint in _hints(kind).items():
        if not _fits(getattr(value, name), hint):
            wanted = getattr(hint, "__name__", hint)
            raise TypeError(f"{name} of {kind.__name__} is not of the type {wanted}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def _fits(value: Any, hint: Any) -> bool:
    origin, args = get_origin(hint) or hint, get_args(hint)
    if hint is float:
        return isinstance(value, int | float)
    if origin is UnionType:
        return any(_fits(value, each) for each in args)
    if getattr(origin, "_is_protocol", False):  # a policy: its question is not checked
        return type(value) in TYPES.values() and is_dataclass(value)
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if not isinstance(value, origin):
        return False
    if args == (int, ...) or args == (int,):  # prompts are long
        return {*map(type, value)} <= {int}
    if origin is frozenset or ... in args:
        return all(_fits(each, args[0]) for each in value)
    if args:
        return len(value) == len(args) and all(map(_fits, value, args))
    if is_dataclass(value):
        check_types(value)
    return True
