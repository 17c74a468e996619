"""Rows of a report are read by the column names of the file, or refused by name."""

import json
from dataclasses import asdict
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.core.ledger import RequestRow, SizeChange, StepRow
from headway.core.request import NEVER, Finish
from headway.errors import SettingError
from headway.report.row_table import read_rows, row_table
from headway.runs.remote.client_row import ClientRow

BUDGET = Budget()
REQUEST = RequestRow(
    *("r", "never", BUDGET, Finish.LENGTH, 1, 2, NEVER, NEVER, 5, 6, 7, 8, 9, 10, 11),
    tenant="never",
)
ROWS = [
    REQUEST,
    StepRow(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
    ClientRow("r", NEVER, 1, 200, "", 20, True, (3, 4)),
    SizeChange("chat", "slots", 4, 8, "as it kept its budget", 90),
]


def named(row):
    return row._asdict() if isinstance(row, tuple) else asdict(row) | {"budget": BUDGET}


def written(row):
    columns = [name for name in named(row) if name != "budget"]
    return json.loads(json.dumps(row_table(columns, [row, row])))


def read(row, table):
    return read_rows(type(row), table, "here", ("budget",) if row is REQUEST else ())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
@given(random=st.randoms())
def test_columns_may_come_in_any_order(row, random):
    table = written(row)
    order = random.sample(range(len(table["columns"])), len(table["columns"]))
    table = {
        "columns": [table["columns"][at] for at in order],
        "rows": [[values[at] for at in order] for values in table["rows"]],
    }
    for found in read(row, table):
        wanted = {name: value for name, value in named(row).items() if name in found}
        assert found == json.loads(json.dumps(wanted)) and len(found) == len(order)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_an_unknown_column_is_refused_by_name(row):
    table = written(row)
    table["columns"].append("colour")
    table["rows"] = [[*values, 1] for values in table["rows"]]
    with pytest.raises(SettingError, match=r"^here: the column 'colour' is not known"):
        read(row, table)


def test_a_missing_column_is_refused_unless_the_row_has_a_default():
    table = written(REQUEST)
    last = table["columns"].index("tenant")
    table["columns"].pop(last)
    table["rows"] = [values[:last] + values[last + 1 :] for values in table["rows"]]
    assert RequestRow(budget=BUDGET, **read(REQUEST, table)[0]).tenant == ""
    table["columns"].pop(0)
    table["rows"] = [values[1:] for values in table["rows"]]
    with pytest.raises(SettingError, match=r"^here: the column 'id' is missing"):
        read(REQUEST, table)


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda table: [], "here: a mapping is wanted, not list"),
        (lambda table: table | {"rows": 3}, "here: columns and rows are lists"),
        (lambda table: table | {"columns": "id"}, "here: columns and rows are lists"),
        (lambda table: table | {"rows": [[1]]}, "here: row 0 is no list of 8 values"),
        (lambda table: table | {"rows": [7]}, "here: row 0 is no list of 8 values"),
        (lambda table: changed(table, "lag", "soon"), "column lag: there is a value of .* str"),
        (lambda table: changed(table, "lag", True), "column lag: there is a value of .* bool"),
        (lambda table: changed(table, "left", 1), "column left: there is a value of .* int"),
        (lambda table: changed(table, "id", None), "column id: there is a value of .* NoneType"),
        (lambda table: changed(table, "lag", nan), "column lag: there is a value .* finite, nan"),
        (lambda table: changed(table, "lag", inf), "column lag: there is a value .* finite, inf"),
        (lambda table: changed(table, "gaps", [1, -inf]), "column gaps: .* not finite, -inf"),
        (lambda table: changed(table, "gaps", 5), "column gaps: there is a value of .* int"),
        (lambda table: changed(table, "gaps", ["a"]), "column gaps: there is a list of something"),
        (
            lambda table: {"columns": [*table["columns"], "lag"], "rows": []},
            "here: a column is there twice",
        ),
    ],
)
def test_an_invalid_table_or_value_is_refused(change, reason):
    row = ROWS[2]
    with pytest.raises(SettingError, match=reason):
        read(row, change(written(row)))


def changed(table, column, value):
    table["rows"][1][table["columns"].index(column)] = value
    return table
