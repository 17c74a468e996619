"""The function that is served (Target): found by its name, with the types of its items."""

import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from os.path import exists  # unlike Path's, it never raises
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter

from headway.batching.calling import is_stream
from headway.batching.decorator import BatchedFunction
from headway.errors import SettingError, did_you_mean, first_line
from headway.server.config.sections.models import FUNCTION
from headway.server.http.openapi import SCHEMAS

NO_LISTS = frozenset({str, bytes, int, float, bool, dict, set, frozenset})
Mode = Literal["validation", "serialization"]  # of an item, of a result


@dataclass(frozen=True, slots=True)
class Target:
    """A function, how it is batched, and what its items and results are."""

    name: str
    function: Callable[..., Any]
    settings: dict[str, Any]  # fields of BatchSettings
    item: TypeAdapter[Any]
    result: TypeAdapter[Any]  # of a stream, its pieces
    streams: bool
    arrays: bool  # its items are numpy's arrays

    @property
    def schemas(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """JSON schemas of an item and of a result; the schemas they refer to are in `models`."""
        item: dict[str, Any] = {"type": "array"}
        if not self.arrays:
            item = self.item.json_schema(ref_template=self._reference("item"))
        refers = self._reference("result")
        result = self.result.json_schema(ref_template=refers, mode="serialization")
        return item, result

    def models(self) -> dict[str, Any]:
        """The schemas that items and results refer to, by name. The names say whose they are:
        another function may have a class of the same name, and a class that is read may have
        another schema than one that is written."""
        item, result = self.schemas
        return self._named("item", item) | self._named("result", result)

    def _reference(self, part: str) -> str:
        return f"{SCHEMAS}{self.name}.{part}.{{model}}"

    def _named(self, part: str, schema: dict[str, Any]) -> dict[str, Any]:
        found = schema.get("$defs", {})
        return {f"{self.name}.{part}.{name}": each for name, each in found.items()}

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


def names_a_function(text: str) -> bool:
    """Whether a command's argument is module:function, and not a folder or a hub id."""
    return bool(FUNCTION.fullmatch(text)) and not exists(text)


def find(text: str) -> Target:
    """Import the function. The current folder comes first on the path. Raises SettingError."""
    module_name, _, name = text.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # of any kind: the module is the user's
        what = f"{type(error).__name__}: {first_line(error)}"
        raise SettingError(f"{module_name} cannot be imported: {what}") from error
    found = getattr(module, name, None)
    if found is None:
        near = did_you_mean(name, [each for each in vars(module) if not each.startswith("_")])
        raise SettingError(f"{module_name} has no {name!r}{near}")
    if isinstance(found, BatchedFunction):
        return made_target(name, found.function, found.settings)
    if not callable(found) or isinstance(found, type):
        raise SettingError(f"{text} is a {type(found).__name__}, and not a function of a list")
    return made_target(name, found, {})


def made_target(name: str, function: Callable[..., Any], settings: dict[str, Any]) -> Target:
    """The target of a function. Its type hints give the types of items and results; without hints
    both may be anything. Raises SettingError for a hint that is no list."""
    called: Any = function
    if not isinstance(function, types.FunctionType | types.MethodType):
        called = getattr(function, "__call__", function)  # noqa: B004  (of an instance)
    try:
        hints = typing.get_type_hints(called, include_extras=True)  # Annotated has constraints
    except Exception as error:  # of any kind: hints are expressions of the user's
        raise SettingError(f"the hints of {name} make no sense: {first_line(error)}") from error
    returned = hints.pop("return", Any)
    taken = hints.get(_first_parameter(called), Any) if hints else Any
    streams = is_stream(function)
    if streams:  # Iterator[list[piece]]
        returned = next(iter(typing.get_args(returned)), Any)
    item = _element(taken, name)
    arrays = _is_array(item)
    adapter = TypeAdapter(Any) if arrays else _adapter(item, name, "validation")
    result = _adapter(_without_errors(_element(returned, name)), name, "serialization")
    return Target(name, function, settings, adapter, result, streams, arrays)


def _first_parameter(called: Any) -> str:
    return next(iter(inspect.signature(called).parameters), "")


def _element(hint: Any, name: str) -> Any:
    """The X of list[X]; Any for a hint that does not name its elements. Of a union, what the
    elements of its lists may be."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _element(typing.get_args(hint)[0], name)
    if (origin or hint) in NO_LISTS:
        raise SettingError(f"{name} must take and return lists: one item for each caller")
    if _is_union(origin):
        members = [each for each in typing.get_args(hint) if each is not types.NoneType]
        lists = [each for each in members if (typing.get_origin(each) or each) not in NO_LISTS]
        elements = tuple([_element(each, name) for each in lists or members])
        return Union[elements]  # noqa: UP007  (`|` makes none of a tuple)
    if origin is None or origin.__name__ == "ndarray":
        return Any
    return next(iter(typing.get_args(hint)), Any)


def _is_union(origin: Any) -> bool:
    return origin is Union or origin is types.UnionType


def _without_errors(hint: Any) -> Any:
    """The hint of a result without the exceptions that may be in its place."""
    if not _is_union(typing.get_origin(hint)):
        return hint
    results = tuple([each for each in typing.get_args(hint) if not _is_error(each)])
    return Union[results] if results else Any  # noqa: UP007


def _is_error(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseException)


def _is_array(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return getattr(hint, "__name__", "") == "ndarray"


def _adapter(hint: Any, name: str, mode: Mode) -> TypeAdapter[Any]:
    if _is_array(hint):
        return TypeAdapter(Any)
    try:
        adapter = TypeAdapter[Any](hint)
        adapter.json_schema(mode=mode)  # later it is needed for /openapi.json
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        what = "JSON can be read as" if mode == "validation" else "JSON schema describes"
        raise SettingError(f"{name}: no {what} {hint}: {first_line(error)}") from error
    return adapter
