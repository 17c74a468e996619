"""Rows in a report's JSON: the column names once, then a list of values for each row."""

from collections.abc import Collection, Iterable, Sequence
from inspect import Parameter, signature
from itertools import chain
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any, get_type_hints

from headway.core.request import NEVER, Finish
from headway.errors import SettingError, did_you_mean

# A column's JSON types, by its type in the row. null is a time that did not come.
TYPES: dict[Any, set[type]] = {
    int: {int, float, NoneType},
    str: {str},
    bool: {bool},
    Finish: {str},
    tuple[int, ...]: {list},
}


def row_table(columns: Sequence[str], rows: Iterable[Any]) -> dict[str, Any]:
    """Build a table of these fields of the rows, with NEVER as null."""
    fields = attrgetter(*columns)
    return {
        "columns": columns,
        "rows": [[None if each == NEVER else each for each in fields(row)] for row in rows],
    }


def read_rows(
    kind: type, table: Any, where: str, given: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Read each row as a dict from column name to value, with null as NEVER.

    kind: the class of the rows. given: fields that the table need not have. Raises SettingError
    for an unknown column, a missing one, or one with values of the wrong type.
    """
    plain = mapping(table, where)
    columns, rows = plain["columns"], plain["rows"]
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise SettingError(f"{where}: columns and rows are lists")
    _check_columns(kind, columns, where, given)
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(columns):
            raise SettingError(f"{where}: row {number} is no list of {len(columns)} values")
    hints = get_type_hints(kind)
    for name, values in zip(columns, zip(*rows, strict=True), strict=False):  # rows may be empty
        _check_types(hints[name], values, f"{where}: column {name}")
    return [
        {name: NEVER if value is None else value for name, value in zip(columns, row, strict=True)}
        for row in rows
    ]


def _check_columns(kind: type, columns: list[Any], where: str, given: Collection[str]) -> None:
    fields = {k: each for k, each in signature(kind).parameters.items() if k not in given}
    for name in columns:
        if name not in fields:
            close = did_you_mean(str(name), fields)
            raise SettingError(f"{where}: the column {name!r} is not known{close}")
    if len(set(columns)) < len(columns):
        raise SettingError(f"{where}: a column is there twice")
    for name, each in fields.items():
        if name not in columns and each.default is Parameter.empty:
            raise SettingError(f"{where}: the column {name!r} is missing")


def _check_types(hint: Any, values: Sequence[Any], where: str) -> None:
    if not set(map(type, values)) <= TYPES[hint]:
        wrong = next(value for value in values if type(value) not in TYPES[hint])
        raise SettingError(f"{where}: there is a value of another type, {type(wrong).__name__}")
    numbers: Iterable[Any] = values
    if hint == tuple[int, ...]:
        numbers = list(chain.from_iterable(values))
        if not set(map(type, numbers)) <= {int, float}:
            raise SettingError(f"{where}: there is a list of something other than numbers")
    for value in numbers:
        if type(value) is float and not isfinite(value):
            raise SettingError(f"{where}: there is a value that is not finite, {value}")


def mapping(value: Any, where: str) -> dict[str, Any]:
    """Return the value if it is a mapping. The SettingError omits the value, which may be long."""
    if not isinstance(value, dict):
        raise SettingError(f"{where}: a mapping is wanted, not {type(value).__name__}")
    return value
