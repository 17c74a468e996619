"""Database: the store's one connection, to SQLite or PostgreSQL, with its tables up to date."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from headway.errors import HeadwayError, SettingError, first_line
from headway.store.file_lock import FileLock
from headway.store.migrate import upgrade
from headway.store.shown_url import without_password

SQLITE, POSTGRESQL = "sqlite", "postgresql"
SECONDS = {
    SQLITE: "SELECT strftime('%s', 'now')",
    POSTGRESQL: "SELECT floor(extract(epoch FROM clock_timestamp()))",
}
NANOSECONDS = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000000)"
PATIENCE = 10  # seconds to wait for another process's transaction, or to connect to PostgreSQL
# How a connection to PostgreSQL notices within 20 s that its host is gone, unless the URL says it.
KEPT_ALIVE = {
    "keepalives_idle": 10,  # seconds without data before TCP asks the host
    "keepalives_interval": 5,  # seconds between two such questions
    "keepalives_count": 2,  # questions without an answer
    "tcp_user_timeout": 20_000,  # milliseconds without an acknowledgement of what was sent
}
_File = tuple[int, int]  # its device, and its number there
ENCODING = "UTF8"  # the only one of PostgreSQL that can store every text
# Milliseconds without a statement after which PostgreSQL ends a transaction. Its server is stopped,
# or its host is gone, and what it has locked would hold up all other servers.
ABANDONED = 20_000


class StoreError(HeadwayError):
    """The store cannot be read or written now, such as when its disk is full or its server down."""


class Database:
    """Transactions on a store. Used by one thread at a time.

    alone: lock a SQLite file against other serving processes; the lock ends with this process.
    Raises SettingError if the store cannot be opened, or if another process holds its lock.
    """

    def __init__(self, where: str, *, alone: bool = True) -> None:
        url = url_of(where)
        self.name = without_password(url.render_as_string(hide_password=False))
        self.is_file = url.get_backend_name() == SQLITE
        self._path = url.database or ""  # of a file
        self._file: _File | None = None  # the file that is open; None: not yet, or no file
        self._lock = FileLock(Path(f"{url.database}.lock")) if self.is_file and alone else None
        try:
            if self.is_file and url.database:
                Path(url.database).touch(0o600)  # it holds prompts; SQLite's other files follow it
            self._engine = _engine(url)
            with self.begin() as connection:
                self._check_encoding(connection)
                upgrade(connection)
            self._file = _file_at(self._path) if self.is_file else None
        except SettingError:
            self.close()
            raise
        except (SQLAlchemyError, StoreError, OSError) as error:
            self.close()
            raise SettingError(f"the store {self.name} cannot be opened: {cause(error)}") from error

    def _check_encoding(self, connection: Connection) -> None:
        """Raise SettingError if a client's text could be one that the database cannot store."""
        if self.is_file:
            return
        found = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if found != ENCODING:
            raise SettingError(
                f"the store {self.name} has the encoding {found}, which cannot store every text: "
                "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
            )

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run the block in a transaction: commit when it ends, roll back if it raises. Raises
        StoreError, also for a number that no column can hold."""
        if self._file and _file_at(self._path) != self._file:
            # SQLite would go on in a file without a name, and all of it would be lost at the end.
            why = "its file was deleted or replaced: put it back, or start the server again"
            raise StoreError(f"the store {self.name}: {why}")
        try:
            with self._engine.begin() as connection:
                yield connection
        except (DBAPIError, OverflowError) as error:
            raise StoreError(f"the store {self.name}: {cause(error)}") from error

    def now(self) -> int:
        """Unix seconds by the database's own clock, the same for all servers that share it."""
        with self.begin() as connection:
            return int(connection.exec_driver_sql(SECONDS[connection.dialect.name]).scalar_one())

    def now_ns(self) -> int:
        """Unix nanoseconds by PostgreSQL's clock."""
        with self.begin() as connection:
            return int(connection.exec_driver_sql(NANOSECONDS).scalar_one())

    def close(self) -> None:
        """Close the connection and release the file's lock."""
        if engine := getattr(self, "_engine", None):
            engine.dispose()
        if self._lock:
            self._lock.release()


def _file_at(path: str) -> _File | None:
    """The file that has this path now; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def url_of(where: str) -> URL:
    """The URL of a store: a path names a SQLite file. Raises SettingError."""
    if "://" not in where:
        path = Path(where).expanduser()
        if not path.parent.is_dir():
            raise SettingError(f"the store {where}: there is no folder {path.parent}")
        return URL.create(SQLITE, database=os.path.realpath(path))  # its lock has one name
    try:
        url = make_url(where)
    except ArgumentError:
        raise SettingError("the store's URL cannot be read; write postgresql://host/name") from None
    backend = url.get_backend_name()
    if backend == POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    if backend == SQLITE and url.database and url.database != ":memory:":
        return url_of(url.database)
    raise SettingError(f"a store is a file of SQLite or postgresql://, not {backend}://")


def _engine(url: URL) -> Engine:
    """An engine with one connection."""
    if url.get_backend_name() == POSTGRESQL:
        kept = {name: each for name, each in KEPT_ALIVE.items() if name not in url.query}
        arguments = {"connect_timeout": PATIENCE, "client_encoding": ENCODING, **kept}
        try:
            engine = create_engine(
                url,
                isolation_level="READ COMMITTED",  # whatever the database's default is
                pool_size=1,
                max_overflow=0,
                pool_pre_ping=True,
                connect_args=arguments,
            )
        except ModuleNotFoundError:
            raise SettingError(
                "PostgreSQL needs psycopg: pip install 'headway[postgres]'"
            ) from None
        event.listen(engine, "connect", _prepare_postgresql)
        return engine
    arguments = {"timeout": PATIENCE, "check_same_thread": 0}
    engine = create_engine(url, pool_size=1, max_overflow=0, connect_args=arguments)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_postgresql(connection: Any, record: object) -> None:
    connection.execute(f"SET idle_in_transaction_session_timeout = {ABANDONED}")
    connection.commit()


def _prepare_sqlite(connection: Any, record: object) -> None:
    """Let readers not wait for the writer (WAL), and commits survive a power cut (FULL)."""
    connection.isolation_level = None  # keep the driver from beginning transactions itself
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once: a transaction that read first could fail when it begins to
    write."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def cause(error: Exception) -> str:
    """The database's error message, in one line."""
    return first_line(error.orig if isinstance(error, DBAPIError) and error.orig else error)
