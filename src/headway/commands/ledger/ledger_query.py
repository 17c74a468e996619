"""`headway ledger query`, `export` and `check`."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headway.commands.ledger.analysis import VIEWS, LedgerAnalysis
from headway.commands.output_file import check_not_input, check_replaceable
from headway.errors import SettingError
from headway.printable import printable
from headway.store.ledger.check import problems_of
from headway.store.ledger.reading import LedgerReader, files_of

PARQUET = b"PAR1"  # how each such file begins
SHOWN = 200  # rows that are printed
NAME = 12  # characters of a column's name for which there must be room; longer names wrap


def run_query(where: str, sql: str, as_json: bool, console: Console) -> int:
    """Print a query's result; return exit status 0. Raises SettingError."""
    analysis = LedgerAnalysis(where)
    columns, rows = analysis.query(sql)
    analysis.close()
    if as_json:
        for row in rows:
            found = _finite(dict(zip(columns, row, strict=True)))
            print(json.dumps(found, default=str, allow_nan=False))
        return 0
    # Callers chose some of the values, such as a request's own id.
    shown = [["" if each is None else printable(str(each)) for each in row] for row in rows[:SHOWN]]
    for table in _tables(columns, shown, console.width):
        console.print(table)
    if len(rows) > SHOWN:
        console.print(f"{len(rows) - SHOWN} more rows: --json prints all of them")
    return 0


def _tables(columns: list[str], rows: list[list[str]], width: int) -> list[Table]:
    """The rows as one table; or each as a table of its own, a column on each line, if the columns
    do not fit side by side."""
    if rows and 1 + sum([min(len(name), NAME) + 3 for name in columns]) > width:
        return [_pairs(f"row {number}", columns, row) for number, row in enumerate(rows, 1)]
    table = Table()
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return [table]


def _pairs(title: str, names: list[str], values: list[str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in zip(names, values, strict=True):
        table.add_row(name, value)
    return table


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot express, by null."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def run_export(where: str, to: Path, view: str, console: Console) -> int:
    """Write a view as Parquet; return exit status 0. Raises SettingError, also for a file that is
    there and not Parquet."""
    if view not in VIEWS:
        raise SettingError(f"--view is one of {', '.join(VIEWS)}, not {view!r}")
    check_not_input(to, "--to", files_of(where))
    check_replaceable(to, "--to", [PARQUET], "Parquet")
    analysis = LedgerAnalysis(where)
    count = analysis.export(to, view)
    analysis.close()
    console.print(f"{count} rows of {view} in {to}")
    return 0


def run_check(where: str, console: Console) -> int:
    """Print each wrong sum; return exit status 1 if there is one, else 0. Raises SettingError."""
    reader = LedgerReader(where)
    problems = problems_of(reader)
    reader.close()
    for each in problems:
        console.print(each, markup=False)
    console.print("all sums are exact" if not problems else f"{len(problems)} sums are wrong")
    return int(bool(problems))
