"""LedgerReader: reads a store's ledger while a server writes to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, Select, create_engine, event, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from headway.errors import SettingError
from headway.store.database import ENCODING, PATIENCE, StoreError, cause, url_of
from headway.store.ledger.ledger_tables import REQUESTS
from headway.store.ledger.stored_call import latest_call
from headway.store.shown_url import without_password

PIECE = 10_000  # rows in memory at a time


class LedgerReader:
    """A read-only view of a ledger that blocks no writer. Raises SettingError if there is none."""

    def __init__(self, where: str) -> None:
        url = url_of(where)
        self.name = without_password(url.render_as_string(hide_password=False))
        self._engine = _reading_engine(url, self.name)
        try:
            found = inspect(self._engine).has_table("ledger_requests")
        except SQLAlchemyError as error:
            raise SettingError(f"the ledger {self.name} cannot be read: {cause(error)}") from error
        if not found:
            self.close()
            raise SettingError(f"there is no ledger in {self.name}; see headway serve --ledger")

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A snapshot of the ledger; later writes are not visible in it. Raises StoreError."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"the ledger {self.name}: {cause(error)}") from error

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()


def files_of(where: str) -> list[Path]:
    """The files that a store of SQLite consists of; none for PostgreSQL. Raises SettingError."""
    url = url_of(where)
    if url.get_backend_name() != "sqlite":
        return []
    return [Path(f"{url.database}{end}") for end in ("", "-wal", "-shm", "-journal")]


def rows_of_call(connection: Connection, id: str) -> list[dict[str, Any]]:
    """The rows of the call with this id or X-Request-Id, of any tenant; see `latest`."""
    wanted = select(REQUESTS).where(REQUESTS.c.call == latest_call(connection, id))
    return [dict(row._mapping) for row in connection.execute(wanted.order_by(REQUESTS.c.id))]


def pieces(connection: Connection, wanted: Select[Any]) -> Iterator[list[Any]]:
    """The rows of a query, up to PIECE at a time."""
    found = connection.execution_options(yield_per=PIECE).execute(wanted)
    for rows in found.partitions():
        yield list(rows)


def _reading_engine(url: URL, name: str) -> Engine:
    if url.get_backend_name() != "sqlite":
        level = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            arguments = {"connect_timeout": PATIENCE, "client_encoding": ENCODING}
            return create_engine(url, connect_args=arguments, execution_options=level)
        except ModuleNotFoundError:
            why = "PostgreSQL needs psycopg: pip install 'headway[postgres]'"
            raise SettingError(why) from None
    path = Path(url.database or "")
    if not path.is_file():
        raise SettingError(f"there is no ledger {name}")
    query = {"mode": "ro", "uri": "true"}
    if not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        query["immutable"] = "1"  # SQLite can make no file beside it, and no server writes to it
    file = URL.create("sqlite", database=f"file:{quote(str(path))}", query=query)
    engine = create_engine(file, connect_args={"timeout": PATIENCE})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # the driver would begin no transaction for a SELECT


def _begin_sqlite(connection: Connection) -> None:
    """Let all queries of a transaction see what the first one sees."""
    connection.exec_driver_sql("BEGIN")
