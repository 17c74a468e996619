"""Files: uploads, and the results of batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select, update

from headway.store.database import Database
from headway.store.ids import new_id
from headway.store.tables import FILES, ITEMS, PARTS, ItemState

PAGE = 64  # results read at a time
CLEARED, PIECE_CLEARED = 1_024, 16 << 20  # rows and bytes deleted at a time: others wait for it
PIECE = 1 << 20  # bytes of results read at a time; a longer result is read alone
FAILED = ItemState.FAILED, ItemState.UNANSWERED
Then = Callable[[Connection], object] | None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A row of `files`."""

    id: str
    tenant: str
    purpose: str
    filename: str
    bytes: int
    created_at: int
    expires_at: int | None
    is_whole: bool = True
    job: str | None = None
    is_errors: bool = False


class Files:
    """The files of all tenants. `now` is always in Unix seconds.

    then: called within the transaction, once the change is stored. If it raises, it is not.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, tenant: str, now: int, then: Then = None) -> str:
        """Begin a file, and return its id. The file stays hidden until `finish`."""
        file = StoredFile(new_id("file-", now), tenant, "", "", 0, now, None, is_whole=False)
        with self._database.begin() as connection:
            add_file(connection, file)
            if then:
                then(connection)
        return file.id

    def append(self, id: str, number: int, data: bytes, then: Then = None) -> None:
        """Store a part of the file. number: from 0, without gaps."""
        with self._database.begin() as connection:
            connection.execute(insert(PARTS).values(file=id, number=number, data=data))
            more = {"bytes": FILES.c.bytes + len(data)}
            connection.execute(update(FILES).where(FILES.c.id == id).values(more))
            if then:
                then(connection)

    def finish(self, file: StoredFile, then: Then = None) -> None:
        """Mark the file as whole, which makes it visible."""
        values = {
            "purpose": file.purpose,
            "filename": file.filename,
            "bytes": file.bytes,
            "expires_at": file.expires_at,
            "is_whole": True,
        }
        with self._database.begin() as connection:
            connection.execute(update(FILES).where(FILES.c.id == file.id).values(values))
            if then:
                then(connection)

    def get(self, tenant: str, id: str) -> StoredFile | None:
        """One of the tenant's files; None: the tenant has none with this id."""
        with self._database.begin() as connection:
            mine = _whole(tenant).where(FILES.c.id == id)
            row = connection.execute(mine).one_or_none()
            return _file(row) if row else None

    def page(
        self, tenant: str, purpose: str, after: str, limit: int, *, oldest_first: bool = False
    ) -> list[StoredFile]:
        """The tenant's files that follow `after`, newest first unless `oldest_first`. Empty
        `purpose`: any. Empty `after`: from the start."""
        wanted = _whole(tenant)
        if purpose:
            wanted = wanted.where(FILES.c.purpose == purpose)
        if after:
            wanted = wanted.where(FILES.c.id > after if oldest_first else FILES.c.id < after)
        order = FILES.c.id if oldest_first else FILES.c.id.desc()
        with self._database.begin() as connection:
            return [_file(row) for row in connection.execute(wanted.order_by(order).limit(limit))]

    def delete(self, id: str) -> None:
        """Delete a file and its content."""
        with self._database.begin() as connection:
            drop_file(connection, id)

    def clear_some(self, id: str) -> bool:
        """Hide a file of results, and clear its next piece, before it is deleted. False: it has no
        more, or it is an upload."""
        with self._database.begin() as connection:
            row = connection.execute(select(FILES).where(FILES.c.id == id)).one_or_none()
            if row is None or row.job is None:
                return False
            connection.execute(update(FILES).where(FILES.c.id == id).values(is_whole=False))
            size = func.length(ITEMS.c.output)
            mine = _results_of(row) & ITEMS.c.output.is_not(None)
            sizes = select(ITEMS.c.number, size).where(mine).order_by(ITEMS.c.number).limit(CLEARED)
            if not (found := connection.execute(sizes).all()):
                return False
            these = ITEMS.c.number.between(found[0][0], first_piece(found))
            connection.execute(update(ITEMS).where(mine & these).values(output=None))
        return True

    def expired(self, now: int, uploads_before: int) -> list[str]:
        """The ids of files to delete: expired ones, those whose deletion was cut off, and
        unfinished uploads that were begun before `uploads_before`."""
        is_old = FILES.c.job.is_not(None) | (FILES.c.created_at < uploads_before)
        over = (FILES.c.expires_at <= now) | (FILES.c.is_whole.is_(False) & is_old)
        with self._database.begin() as connection:
            return list(connection.execute(select(FILES.c.id).where(over)).scalars())

    def content(self, file: StoredFile) -> Iterator[bytes]:
        """The file's bytes, in pieces; each piece is read when it is asked for."""
        return self._parts(file.id) if file.job is None else self._results(file.job, file.is_errors)

    def _parts(self, id: str) -> Iterator[bytes]:
        number = 0
        wanted = select(PARTS.c.data).where(PARTS.c.file == id)
        while True:
            with self._database.begin() as connection:
                data = connection.execute(wanted.where(PARTS.c.number == number)).scalar()
            if data is None:
                return
            yield bytes(data)
            number += 1

    def _results(self, job: str, is_errors: bool) -> Iterator[bytes]:
        states = FAILED if is_errors else (ItemState.ANSWERED,)
        mine, last = (ITEMS.c.job == job) & ITEMS.c.state.in_(states), -1
        size = func.coalesce(func.length(ITEMS.c.output), 0)
        sizes = select(ITEMS.c.number, size).where(mine).order_by(ITEMS.c.number).limit(PAGE)
        outputs = select(ITEMS.c.output).where(mine).order_by(ITEMS.c.number)
        while True:
            with self._database.begin() as connection:
                found = connection.execute(sizes.where(ITEMS.c.number > last)).all()
                if not found:
                    return
                until, total = found[0]
                for number, length in found[1:]:
                    total += length
                    if total > PIECE:
                        break
                    until = number
                these = ITEMS.c.number.between(last + 1, until)
                rows = connection.execute(outputs.where(these)).scalars().all()
            yield b"".join([row for row in rows if row is not None])
            last = until


def add_file(connection: Connection, file: StoredFile) -> None:
    """Add a file, within a transaction."""
    values = {name: getattr(file, name) for name in StoredFile.__slots__}
    connection.execute(insert(FILES).values(values))


def bytes_of(connection: Connection, tenant: str) -> int:
    """The bytes of all the tenant's files, also of unfinished ones. Runs within a transaction."""
    wanted = select(func.coalesce(func.sum(FILES.c.bytes), 0)).where(FILES.c.tenant == tenant)
    return int(connection.execute(wanted).scalar_one())


def drop_file(connection: Connection, id: str) -> None:
    """Delete a file, within a transaction. For a result file, clear its items' outputs."""
    row = connection.execute(select(FILES).where(FILES.c.id == id)).one_or_none()
    if row and row.job is not None:
        connection.execute(update(ITEMS).where(_results_of(row)).values(output=None))
    connection.execute(delete(FILES).where(FILES.c.id == id))


def first_piece(sizes: Sequence[Row[int, int | None]]) -> int:
    """The number of the last row of those that are deleted at once. sizes: of the rows that come
    next, by their numbers."""
    until, total = sizes[0]
    for number, size in sizes[1:]:
        total = (total or 0) + (size or 0)
        if total > PIECE_CLEARED:
            break
        until = number
    return until


def _results_of(file: Row[Any]) -> ColumnElement[bool]:
    """Match the items whose results are the content of this file."""
    states = FAILED if file.is_errors else (ItemState.ANSWERED,)
    mine: ColumnElement[bool] = ITEMS.c.job == file.job
    return mine & ITEMS.c.state.in_(states)


def _whole(tenant: str) -> Select[tuple[object, ...]]:
    return select(FILES).where(FILES.c.tenant == tenant, FILES.c.is_whole)


def _file(row: Row[tuple[object, ...]]) -> StoredFile:
    return StoredFile(**row._mapping)
