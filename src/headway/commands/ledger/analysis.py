"""LedgerAnalysis: a copy of the ledger in DuckDB, to query and export."""

import csv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headway.commands.output_file import replacing
from headway.errors import SettingError, first_line

try:
    from sqlalchemy import BigInteger, Boolean, Integer, select
except ModuleNotFoundError as missing:
    raise SettingError(
        f"reading a ledger needs {missing.name}: pip install 'headway[ledger]'"
    ) from missing
from headway.store.ledger.ledger_tables import MINUTES, OUTCOMES, REQUESTS
from headway.store.ledger.reading import LedgerReader, pieces

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# The views that a query sees (docs/ledger.md). Money in units of currency, times as timestamps.
VIEWS = {
    "requests": (
        REQUESTS,
        "make_timestamp(arrived // 1000) AS time, device_money / 1e9 AS device_cost, "
        "charged / 1e9 AS charge",
    ),
    "minutes": (MINUTES, "make_timestamp(minute * 60000000) AS time, money / 1e9 AS cost"),
    "outcomes": (OUTCOMES, 'make_timestamp("at" // 1000) AS time, value / 1e6 AS number'),
}
TEXT = "VARCHAR"  # no column of texts holds NULL, so an empty field is an empty text


class LedgerAnalysis:
    """A copy of the ledger as it is now; queries never change the ledger. Raises SettingError.

    The rows go through CSV files, because DuckDB would fetch its own readers for SQLite and
    PostgreSQL from the network at first use.
    """

    def __init__(self, where: str) -> None:
        try:
            import duckdb
        except ModuleNotFoundError:
            raise SettingError(
                "querying a ledger needs duckdb: pip install 'headway[ledger]'"
            ) from None
        self._error: type[Exception] = duckdb.Error
        self._connection: DuckDBPyConnection = duckdb.connect()
        self._is_closed_off = False
        reader = LedgerReader(where)
        try:
            with TemporaryDirectory(prefix="headway-ledger-") as folder:
                self._copy(reader, Path(folder))
        except (self._error, OSError) as error:
            raise SettingError(
                f"{reader.name} cannot be copied to query it: {first_line(error)}"
            ) from None
        finally:
            reader.close()

    def _copy(self, reader: LedgerReader, folder: Path) -> None:
        with reader.begin() as connection:
            for name, (table, more) in VIEWS.items():
                path = folder / f"{name}.csv"
                with path.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.writer(file)
                    writer.writerow([column.name for column in table.columns])
                    for rows in pieces(connection, select(table)):
                        writer.writerows(rows)  # NULL is an empty field
                types = {column.name: _type(column.type) for column in table.columns}
                texts = [column for column, kind in types.items() if kind == TEXT]
                how = f"header = true, quote = '\"', columns = {types}, force_not_null = {texts}"
                read = f"read_csv({_quoted(path)}, {how})"
                self._connection.execute(f"CREATE TABLE {name}_stored AS FROM {read}")
                view = f"SELECT *, {more} FROM {name}_stored"
                self._connection.execute(f"CREATE VIEW {name} AS {view}")

    def query(self, sql: str, given: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a query; return the column names and the rows. From the first query on, DuckDB has
        no access to files or the network. Raises SettingError."""
        if not self._is_closed_off:
            self._is_closed_off = True
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET lock_configuration = true")
        return self._ask(sql, given)

    def _ask(self, sql: str, given: Sequence[Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        try:
            found: DuckDBPyConnection | None = self._connection.execute(sql, given)
        except self._error as error:
            raise SettingError(f"the query fails: {first_line(error)}") from None
        if found is None:  # there is no statement in it
            raise SettingError("the query is empty: write some SQL")
        return [column[0] for column in found.description or ()], found.fetchall()

    def export(self, to: Path, view: str) -> int:
        """Write a view as Parquet; return its number of rows. Raises SettingError."""
        try:
            with replacing(to) as file:
                self._connection.execute(f"COPY (FROM {view}) TO {_quoted(file)} (FORMAT parquet)")
        except (self._error, OSError) as error:
            raise SettingError(f"{to} cannot be written: {first_line(error)}") from None
        (count,) = self._connection.execute(f"SELECT count(*) FROM {view}").fetchone() or (0,)
        return int(count)

    def close(self) -> None:
        """Forget the copy."""
        self._connection.close()


def _quoted(path: Path) -> str:
    """A path as SQL has it."""
    escaped = str(path).replace("'", "''")
    return f"'{escaped}'"


def _type(kind: object) -> str:
    if isinstance(kind, Boolean):
        return "BOOLEAN"
    return "BIGINT" if isinstance(kind, BigInteger | Integer) else TEXT
