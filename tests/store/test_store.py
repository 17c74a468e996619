"""The store, in SQLite and in PostgreSQL."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text, update

from headway.errors import SettingError
from headway.store import database as database_module
from headway.store import endings, migrate
from headway.store.database import Database, StoreError, url_of
from headway.store.deliveries import Deliveries, add_deliveries, delivery_id, host_of
from headway.store.endings import Endings
from headway.store.files import Files, StoredFile, bytes_of
from headway.store.items.items import MOST_ATTEMPTS, GivenBack, Items, NewItem, Result, add_item
from headway.store.jobs import IN_PROGRESS, Job, Jobs, lock_jobs, open_of
from headway.store.ledger.reading import LedgerReader
from headway.store.lines import unanswered_line
from headway.store.shown_url import without_password
from headway.store.tables import FILES, ITEMS, METADATA, WORKERS
from headway.store.turns import Turn, take_turn
from tests.server.running_server import until

NOW = 1_800_000_000


@pytest.fixture(scope="module")
def postgres(new_postgres):
    return new_postgres()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request, tmp_path_factory):
    where = tmp_path_factory.mktemp("store") / "jobs.db"
    url = request.getfixturevalue("postgres") if request.param == "postgres" else str(where)
    found = Database(url)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def empty(request):
    if "database" in request.fixturenames:
        database = request.getfixturevalue("database")
        with database.begin() as connection:
            for table in reversed(METADATA.sorted_tables):
                connection.execute(table.delete())


class Store:
    """Two workers on one store. announced: the ended jobs, in the order in which they ended."""

    def __init__(self, database):
        self.database, self.announced, self.now = database, [], NOW
        self.endings = Endings(database, self._announce, lambda: self.now, 60)
        self.files, self.jobs = Files(database), Jobs(database)
        self.workers = [Items(database, name, self.endings.finish) for name in "ab"]
        for each in self.workers:
            each.keep_alive(NOW, NOW + 30)

    def forget(self, before, now, **told):
        """Forget all old jobs. Returns how many there were."""
        ids = self.jobs.old(before, now, **told)
        self.jobs.forget(ids)
        return len(ids)

    def _announce(self, connection, job, now):
        self.announced.append((job.id, job.status))

    def batch(self, count, id="batch_1", tenant="t", key="k", endpoint="/v1/x", **values):
        made = {"window": 60, "created_at": NOW, "expires_at": NOW + 60, **values}
        self.jobs.add(Job(id, tenant, key, True, endpoint, **made, worker="a"))
        new = [NewItem(each, f"c{each}", b'{"n": %d}' % each) for each in range(count)]
        if new:
            self.workers[0].add(id, tenant, new)
        self.workers[0].open(id, count, "m", NOW)
        return id

    def call(self, id, tenant="t", endpoint="/v1/x"):
        values = {"window": 60, "created_at": NOW, "expires_at": NOW + 60, "total": 1}
        job = Job(id, tenant, "k", False, endpoint, status=IN_PROGRESS, **values)
        item = NewItem(0, "", b"{}")
        return self.jobs.add(job, lambda connection: add_item(connection, job, item)).id

    def find(self, id="batch_1", tenant="t"):
        return self.jobs.get(tenant, id)

    def content(self, id):
        return b"".join(self.files.content(self.files.get("t", id)))


def answered(item, status=200, tokens=(0, 0, 0)):
    line = b'{"custom_id": "%s"}\n' % item.custom_id.encode()
    return Result(item.job, item.number, status, "application/json", line, *tokens)


def test_the_migrations_make_the_tables(database):
    with database.begin() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []


def test_a_store_of_a_newer_headway_is_refused(tmp_path):
    where = str(tmp_path / "jobs.db")
    newer = Database(where)
    with newer.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    newer.close()
    with pytest.raises(SettingError, match="written by a newer headway"):
        Database(where)


def test_servers_that_begin_at_once_make_the_tables_once(new_postgres, together):
    url = new_postgres()
    opened, waited = together(url, migrate.command, "upgrade", *[lambda: Database(url)] * 2)
    for each in opened:
        each.close()
    assert waited


def test_a_file_of_sqlite_belongs_to_one_process(tmp_path):
    where = str(tmp_path / "jobs.db")
    first = Database(where)
    with pytest.raises(SettingError, match="in use by another server"):
        Database(where)
    first.close()
    Database(where).close()


def test_a_link_to_a_file_of_sqlite_is_the_same_store(tmp_path):
    where, link = tmp_path / "jobs.db", tmp_path / "link.db"
    link.symlink_to(where)
    assert url_of(str(link)) == url_of(str(where))
    first = Database(str(where))
    with pytest.raises(SettingError, match="in use by another server"):
        Database(str(link))
    first.close()


def test_only_the_owner_may_read_a_file_of_sqlite(tmp_path):
    database = Database(str(tmp_path / "jobs.db"))
    Files(database).begin("t", NOW)
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert "jobs.db-wal" in modes and set(modes.values()) == {0o600}
    database.close()


@pytest.mark.parametrize(
    "where, why",
    [
        ("/nowhere/at/all/jobs.db", "there is no folder"),
        ("mysql://host/name", "not mysql://"),
        ("sqlite://", "not sqlite://"),
        ("://", "cannot be read"),
    ],
)
def test_an_invalid_path_or_url_of_a_store_is_refused(where, why):
    with pytest.raises(SettingError, match=why):
        url_of(where)


def test_an_unreachable_database_is_named_without_its_password():
    with pytest.raises(SettingError, match="cannot be opened") as told:
        Database("postgresql://me:secret@127.0.0.1:9/name")
    assert "secret" not in str(told.value)
    with pytest.raises(SettingError, match="cannot be opened") as told:
        Database("postgresql://me@127.0.0.1:9/name?connect_timeout=1&password=s%40cret")
    assert "cret" not in str(told.value) and "me@127.0.0.1:9/name?connect" in str(told.value)


@pytest.mark.parametrize(
    "where, shown",
    [
        ("postgresql://me:p@host/name", "postgresql://me@host/name"),
        ("postgresql://me:p?@host/name", "postgresql://me@host/name"),
        ("postgresql://me:p@w@host/name", "postgresql://me@host/name"),
        ("postgresql://me@host/name?password=p@w", "postgresql://me@host/name"),
        ("postgresql:///name?a=1&%70assword=p&b=2", "postgresql:///name?a=1&b=2"),
        ("postgresql://h/n?sslpassword=p&passfile=/f", "postgresql://h/n?passfile=/f"),
        ("/a/b@c:d?password=p.db", "/a/b@c:d?password=p.db"),
    ],
)
def test_a_url_is_shown_without_its_passwords(where, shown):
    assert without_password(where) == shown


def test_a_connection_sends_keepalives_and_has_a_tcp_timeout(postgres):
    database = Database(f"{postgres}&keepalives_idle=7")
    with database.begin() as connection:
        said = connection.connection.driver_connection.info.get_parameters()
    database.close()
    assert (said["keepalives_idle"], said["keepalives_count"]) == ("7", "2")
    assert said["tcp_user_timeout"] == "20000"


def test_a_server_that_stops_in_a_transaction_does_not_block_the_others(postgres, monkeypatch):
    monkeypatch.setattr(database_module, "ABANDONED", 100)
    stopped, other = Database(postgres), Database(postgres)
    with pytest.raises(StoreError, match="idle-in-transaction timeout"), stopped.begin() as lost:
        take_turn(lost, Turn.MIGRATING)
        with other.begin() as connection:
            take_turn(connection, Turn.MIGRATING)
        take_turn(lost, Turn.MIGRATING)  # the stopped server goes on
    with stopped.begin() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    for each in (stopped, other):
        each.close()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_postgresql_database_that_cannot_store_every_text_is_refused(new_postgres, encoding):
    import psycopg

    name, where = encoding.lower(), new_postgres()
    made = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {made}")
    other = re.sub(r"/headway_\d+\?", f"/{name}?", where)
    with pytest.raises(SettingError, match=f"has the encoding {encoding}"):
        Database(other)
    with pytest.raises(SettingError, match="there is no ledger"):
        LedgerReader(other)


def test_servers_do_not_hinder_each_other_whatever_isolation_is_the_databases_default(new_postgres):
    """In a stricter isolation, one of them fails where it only has to wait."""
    import psycopg

    where = new_postgres()
    with psycopg.connect(where, autocommit=True) as connection:
        name = connection.info.dbname
        level = "SET default_transaction_isolation = 'repeatable read'"
        connection.execute(f"ALTER DATABASE {name} {level}")
    one, other = Database(where), Database(where)
    with one.begin() as first:
        assert first.execute(select(WORKERS)).all() == []
        Items(other, "a", lambda connection, ids: None).keep_alive(NOW, NOW + 30)
        assert first.execute(update(WORKERS).values(alive_until=NOW + 60)).rowcount == 1
    for each in (one, other):
        each.close()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "jobs.db").write_text("no database " * 100)
    with pytest.raises(SettingError, match="not a database"):
        Database(str(tmp_path / "jobs.db"))


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_deleted_or_replaced_while_it_is_in_use_stores_nothing(
    tmp_path, is_replaced
):
    path, elsewhere = tmp_path / "jobs.db", tmp_path / "elsewhere"
    database = Database(str(path))
    path.rename(elsewhere)
    if is_replaced:
        Database(str(tmp_path / "other.db")).close()
        (tmp_path / "other.db").rename(path)
    with pytest.raises(StoreError, match="deleted or replaced"), database.begin():
        pytest.fail("a transaction has begun")
    elsewhere.rename(path)  # it is back
    with database.begin() as connection:
        assert connection.execute(select(FILES)).all() == []
    database.close()


def test_a_file_is_visible_once_its_upload_is_finished(database):
    files = Files(database)
    id = files.begin("t", NOW)
    files.append(id, 0, b"ab")
    files.append(id, 1, b"c")
    with database.begin() as connection:
        assert bytes_of(connection, "t") == 3
    assert files.get("t", id) is None
    whole = StoredFile(id, "t", "batch", "in.jsonl", 3, NOW, NOW + 9)
    files.finish(whole)
    assert files.get("t", id) == whole
    assert files.get("other", id) is None
    assert b"".join(files.content(whole)) == b"abc"
    assert files.page("t", "batch", "", 9) == [whole]
    assert files.page("t", "batch_output", "", 9) == []
    files.delete(id)
    assert files.get("t", id) is None and list(files.content(whole)) == []


def test_results_are_read_in_pieces(database, monkeypatch):
    monkeypatch.setattr("headway.store.files.PIECE", 50)
    store = Store(database)
    store.batch(9)
    a = store.workers[0]
    a.exchange([answered(each) for each in a.exchange([], [], 9)], [], 0)
    file = store.files.get("t", store.find().output_file)
    pieces = list(store.files.content(file))
    assert [len(each) for each in pieces] == [40, 40, 40, 40, 20]
    monkeypatch.setattr("headway.store.files.PIECE", 1)
    assert [len(each) for each in store.files.content(file)] == [20] * 9
    assert b"".join(pieces) == store.content(file.id)


def test_files_are_paged_newest_first_or_oldest_first(database):
    files = Files(database)
    ids = []
    for _ in range(5):
        ids.append(files.begin("t", NOW))
        files.finish(StoredFile(ids[-1], "t", "batch", "f", 0, NOW, None))
    newest = [each.id for each in files.page("t", "", "", 3)]
    assert newest == ids[:1:-1]
    assert [each.id for each in files.page("t", "", newest[-1], 3)] == ids[1::-1]
    assert [each.id for each in files.page("t", "", ids[1], 2, oldest_first=True)] == ids[2:4]


def test_expired_files_and_broken_uploads_are_deleted(database):
    files = Files(database)
    kept, over, broken = (files.begin("t", NOW) for _ in range(3))
    files.finish(StoredFile(kept, "t", "batch", "f", 0, NOW, NOW + 2))
    files.finish(StoredFile(over, "t", "batch", "f", 0, NOW, NOW + 1))
    for uploads_before in (NOW, NOW + 1):  # first, the upload may still come
        [old] = files.expired(NOW + 1, uploads_before)
        files.delete(old)
    with database.begin() as connection:
        assert connection.execute(select(FILES.c.id)).scalars().all() == [kept]
    assert broken != over


def test_a_batch_ends_with_its_last_item(database):
    store = Store(database)
    store.batch(3)
    a = store.workers[0]
    first, second, third = a.exchange([], [], 9)
    assert [first.body, second.number, third.custom_id] == [b'{"n": 0}', 1, "c2"]
    assert a.exchange([answered(first, tokens=(3, 1, 2)), answered(third, 400)], [], 9) == []
    assert store.announced == [] and store.find().status == "in_progress"
    a.exchange([answered(second, tokens=(5, 0, 2))], [], 9)
    job = store.find()
    assert (job.status, job.total, job.completed, job.failed) == ("completed", 3, 2, 1)
    assert (job.input_tokens, job.cached_tokens, job.output_tokens) == (8, 1, 4)
    assert store.announced == [("batch_1", "completed")]
    lines = b'{"custom_id": "c0"}\n{"custom_id": "c1"}\n'
    assert store.content(job.output_file) == lines
    assert store.files.get("t", job.output_file).bytes == len(lines)
    assert store.content(job.error_file) == b'{"custom_id": "c2"}\n'
    with database.begin() as connection:
        held = select(ITEMS.c.number).where(ITEMS.c.body.is_not(None))
        assert connection.execute(held).all() == [], "no request is kept once it is answered"
    store.files.delete(job.error_file)
    assert store.content(job.output_file) == lines


def test_results_are_kept_for_as_long_as_their_batch_says(database):
    store, kept = Store(database), []
    for id, values in (("batch_1", {"output_expires_after": 3_600}), ("batch_2", {})):
        store.batch(1, id, **values)
        store.workers[0].exchange([answered(*store.workers[0].exchange([], [], 1))], [], 0)
        kept.append(store.files.get("t", store.find(id).output_file).expires_at)
    assert kept == [NOW + 3_600, NOW + 60]


def test_a_result_counts_once_and_only_from_the_worker_that_has_the_item(database):
    store = Store(database)
    store.batch(2)
    a, b = store.workers
    first, second = a.exchange([], [], 2)
    b.exchange([answered(first)], [], 0)
    assert store.find().completed == 0
    a.exchange([answered(first), answered(first)], [], 0)
    a.exchange([answered(first)], [], 0)
    assert store.find().completed == 1
    a.exchange([answered(second)], [], 0)
    assert store.find().status == "completed" and len(store.announced) == 1


def test_calls_are_taken_before_batches_and_tenants_share_the_places(database):
    store = Store(database)
    store.batch(10)
    store.batch(10, "batch_2", "u")
    call = store.call("job_1")
    taken = store.workers[0].exchange([], [], 4)
    assert [each.job for each in taken] == [call, "batch_1", "batch_2", "batch_2"]
    rest = store.workers[1].exchange([], [], 6, {("u", "k"): 0})
    assert {each.job for each in rest} == {"batch_1"} and len(rest) == 6
    others = store.workers[1].exchange([], [], 2, {}, {"batch_1"})
    assert [each.job for each in others] == ["batch_2"] * 2
    assert len(store.workers[1].exchange([], [], 99)) == 21 - 4 - 6 - 2


def test_a_free_place_goes_to_the_tenant_with_the_fewest_running_items(database):
    store = Store(database)
    for tenant in "tuv":
        store.batch(9, f"batch_{tenant}", tenant)
    a, b = store.workers
    held = a.exchange([], [], 5)
    assert [each.tenant for each in held] == ["v", "t", "t", "u", "u"]
    assert len(b.exchange([], [], 9)) == 9  # items that others run do not count
    turns = ""
    for which in (1, 0, 1, 2, 0):  # one item ends, which frees one place
        [more] = a.exchange([answered(held.pop(which))], [], 1)
        held, turns = [*held, more], turns + more.tenant
    assert turns == "vtuvt"


def test_tenants_take_turns_at_the_only_place(database):
    store = Store(database)
    store.batch(6, "batch_1", "t")
    store.batch(3, "batch_2", "u")
    a, turns, done = store.workers[0], "", []
    for _ in range(9):
        [item] = a.exchange(done, [], 1)
        turns, done = turns + item.tenant, [answered(item)]
    assert turns == "tutututtt"


def test_a_place_that_one_tenant_cannot_use_goes_to_the_others(database):
    store = Store(database)
    store.batch(9, "batch_1", "t")
    store.batch(1, "batch_2", "u")
    store.batch(9, "batch_3", "v")
    taken = store.workers[0].exchange([], [], 9)
    assert [each.tenant for each in taken] == list("tttuvvvtv")
    assert sorted(each.number for each in taken if each.tenant == "t") == [0, 1, 2, 3]


def test_a_key_gets_as_many_items_as_it_has_room_for(database):
    store = Store(database)
    store.batch(4, "batch_1", key="one")
    store.batch(4, "batch_2", key="two")
    store.batch(4, "batch_3", key="one")
    store.batch(4, "batch_4", "u", key="one")  # another tenant's key
    a, rooms = store.workers[0], {("t", "one"): 5, ("u", "one"): 0}
    taken = [(each.job, each.number) for each in a.exchange([], [], 3, rooms)]
    assert taken == [("batch_1", 0), ("batch_1", 1), ("batch_1", 2)]
    rooms["t", "one"] = 2
    taken = a.exchange([], [], 99, rooms)
    assert [each.job for each in taken] == ["batch_1", *["batch_2"] * 4, "batch_3"]
    rooms["t", "one"] = 0
    assert a.exchange([], [], 99, rooms) == []
    assert len(a.exchange([], [], 99)) == 3 + 4


def test_items_for_other_endpoints_are_left_to_other_servers(database):
    """Such a batch is left whole. Its places go to other jobs of the same tenant."""
    store = Store(database)
    store.batch(300, id="batch_1", endpoint="/v1/y")
    store.call("job_2")
    store.batch(2, id="batch_3")
    store.call("job_4", endpoint="/v1/y")
    ours, theirs = (
        Items(database, name, store.endings.finish, [path])
        for name, path in (("a", "/v1/x"), ("b", "/v1/y"))
    )
    found = ours.exchange([], [], 9)
    assert [(each.job, each.number) for each in found] == [
        ("job_2", 0),
        ("batch_3", 0),
        ("batch_3", 1),
    ]
    assert {each.job for each in theirs.exchange([], [], 400)} == {"job_4", "batch_1"}


def test_a_batch_for_another_endpoint_is_validated_by_another_server(database):
    store = Store(database)
    about = {"window": 60, "created_at": NOW, "expires_at": NOW + 60}
    store.jobs.add(Job("batch_1", "t", "k", True, "/v1/y", **about))
    assert store.jobs.claim("a", ["/v1/x"]) is None
    assert store.jobs.claim("b", ["/v1/y"]).id == "batch_1"


def test_taking_reads_no_more_than_it_takes(tmp_path):
    database = Database(str(tmp_path / "jobs.db"))
    store, steps = Store(database), []
    store.batch(1, "batch_0", "u")
    store.batch(3_000, "batch_1")
    store.batch(2, "batch_2")
    a = store.workers[0]
    assert {each.job for each in a.exchange([], [], 2)} == {"batch_0", "batch_1"}
    with database.begin() as connection:
        driver = connection.connection.driver_connection
    driver.set_progress_handler(lambda: steps.append(1), 100)
    assert [each.job for each in a.exchange([], [], 1)] == ["batch_1"]
    assert [each.job for each in a.exchange([], [], 2, {}, {"batch_1"})] == ["batch_2"] * 2
    assert a.exchange([], [], 2, {("t", "k"): 0}) == []
    driver.set_progress_handler(None, 100)
    assert len(steps) < 100  # hundreds of SQLite's instructions
    database.close()


def test_an_item_given_back_after_a_counted_attempt_is_taken_after_the_others(database):
    store = Store(database)
    store.batch(3)
    a = store.workers[0]
    first, second = a.exchange([], [], 2)
    assert [each.number for each in a.exchange([], [GivenBack(first)], 1)] == [0]
    taken = a.exchange([], [GivenBack(second, counts=True), GivenBack(first)], 3)
    assert [(each.number, each.attempts) for each in taken] == [(0, 0), (2, 0), (1, 1)]


def test_a_dead_workers_items_are_taken_by_others(database):
    store = Store(database)
    store.batch(2)
    a, b = store.workers
    taken = a.exchange([], [], 2)
    b.keep_alive(NOW + 30, NOW + 60)
    assert b.exchange([], [], 2) == []
    b.keep_alive(NOW + 31, NOW + 61)
    again = b.exchange([], [], 2)
    assert [each.attempts for each in again] == [1, 1]
    a.exchange([answered(each) for each in taken], [], 0)  # the worker was slow and not dead
    assert store.find().completed == 0
    b.exchange([answered(each) for each in again], [], 0)
    assert store.find().status == "completed"


def test_after_an_outage_nothing_is_freed_before_workers_could_renew_their_leases(database):
    store = Store(database)
    store.batch(2)
    a, b = store.workers
    taken = a.exchange([], [], 2)
    b.keep_alive(NOW + 90, NOW + 120)  # after an outage in which no lease could be renewed
    assert b.exchange([], [], 2) == []
    a.exchange([answered(taken[0])], [], 0)
    b.keep_alive(NOW + 100, NOW + 130)
    assert [each.number for each in b.exchange([], [], 2)] == [1]
    assert store.find().completed == 1


def test_the_clock_is_the_databases(database):
    assert abs(database.now() - time.time()) < 600


def test_an_item_whose_server_ends_at_each_attempt_is_given_up(database):
    store = Store(database)
    store.batch(1)
    for _ in range(MOST_ATTEMPTS):
        assert len(store.workers[0].exchange([], [], 1)) == 1
        assert store.workers[1].crashed() == []
        store.workers[1].free_all()
        store.workers[0].keep_alive(NOW, NOW + 30)
    assert store.workers[0].exchange([], [], 1) == []
    [item] = store.workers[1].crashed()
    store.workers[1].exchange([answered(item, 500)], [], 0)
    assert store.find().failed == 1


def test_a_worker_that_leaves_costs_its_items_no_attempt(database):
    store = Store(database)
    store.batch(1)
    store.workers[0].exchange([], [], 1)
    store.workers[0].leave()
    [item] = store.workers[1].exchange([], [], 1)
    assert item.attempts == 0
    with database.begin() as connection:
        assert connection.execute(select(WORKERS.c.id)).scalars().all() == ["b"]


def test_a_batch_whose_worker_leaves_is_validated_by_another_one(database):
    store = Store(database)
    about = {"window": 60, "created_at": NOW, "expires_at": NOW + 60}
    store.jobs.add(Job("batch_1", "t", "k", True, "/v1/x", **about))
    assert store.jobs.claim("a").id == "batch_1" and store.jobs.claim("b") is None
    store.workers[0].leave()
    assert store.jobs.claim("b").id == "batch_1"


@pytest.mark.parametrize("how", ["free_all", "keep_alive"])
def test_the_items_and_the_batch_of_an_unregistered_worker_are_freed(database, how):
    """The worker was killed before its first lease."""
    store = Store(database)
    store.batch(1)
    about = {"window": 60, "created_at": NOW, "expires_at": NOW + 60}
    store.jobs.add(Job("batch_2", "t", "k", True, "/v1/x", **about))
    unknown, other = Items(database, "unknown", store.endings.finish), store.workers[1]
    assert len(unknown.exchange([], [], 1)) == 1 and store.jobs.claim("unknown")
    assert other.exchange([], [], 1) == [] and store.jobs.claim("b") is None
    if how == "free_all":
        other.free_all()
    else:
        other.keep_alive(NOW + 1, NOW + 31)
    [item] = other.exchange([], [], 1)
    assert item.attempts == 1 and store.jobs.claim("b").id == "batch_2"


@pytest.mark.parametrize("how", ["cancelled", "expired"])
def test_a_cancelled_or_expired_batch_keeps_its_answers(database, how):
    store = Store(database)
    store.batch(2_100)
    first, second = store.workers[0].exchange([], [], 2)
    store.workers[0].exchange([answered(first)], [], 0)
    if how == "cancelled":
        store.jobs.cancel("batch_1", NOW)
        assert store.find().status == "cancelling"
    else:
        store.jobs.expire(NOW + 59)
        assert store.find().status == "in_progress"
        store.jobs.expire(NOW + 60)
        assert store.find().status == "finalizing"
    assert store.workers[1].exchange([], [], 9) == []
    with database.begin() as connection:
        assert open_of(connection, "t")[0] == 1, "it has not ended yet"
    rounds = 0
    while store.endings.end_some(store.find()):
        rounds += 1
    assert rounds == 3
    store.workers[0].exchange([answered(second)], [], 0)  # too late
    job = store.find()
    assert (job.status, job.completed, job.failed) == (how, 1, 2_099)
    assert store.announced == [("batch_1", how)]
    errors = [json.loads(line) for line in store.content(job.error_file).splitlines()]
    assert {each["error"]["code"] for each in errors} == {f"batch_{how}"}
    assert len({each["custom_id"] for each in errors}) == 2_099
    store.jobs.cancel("batch_1", NOW)
    assert store.find() == job
    with database.begin() as connection:
        held = select(ITEMS.c.number).where(ITEMS.c.body.is_not(None))
        assert connection.execute(held).all() == [], "no request is kept once it has ended"


@pytest.fixture
def sharing(new_postgres):
    """Three servers on one PostgreSQL."""
    url = new_postgres()
    made = [Store(Database(url)) for _ in range(3)]
    yield made
    for each in made:
        each.database.close()


def until_waiting(connection, count):
    """Wait until that many other connections wait for a lock."""
    waits = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    until(lambda: connection.execute(waits).scalar_one() == count)


@pytest.mark.parametrize("count", [1, 5])
def test_a_job_that_two_servers_end_at_once_ends_once(sharing, monkeypatch, count):
    first, second, other = sharing
    begun, go = Event(), Event()

    def held(*given):
        if not begun.is_set():
            begun.set()
            assert go.wait(60)
        return unanswered_line(*given)

    def ends(store):
        while store.endings.end_some(job):
            pass

    monkeypatch.setattr(endings, "unanswered_line", held)
    monkeypatch.setattr(endings, "PAGE", 2)
    first.batch(count)
    first.jobs.cancel("batch_1", NOW)
    job = first.find()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(ends, first)
        assert begun.wait(60)
        two = pool.submit(ends, second)
        try:
            with other.database.begin() as connection:
                until_waiting(connection, 1)
        finally:
            go.set()
        one.result(), two.result()
    assert first.announced + second.announced == [("batch_1", "cancelled")]
    job = first.find()
    assert (job.failed, first.workers[0].count_waiting()) == (count, 0)
    assert [each.id for each in first.files.page("t", "", "", 9)] == [job.error_file]
    assert len(first.content(job.error_file).splitlines()) == count


def at_once(other, ids, *works):
    """Do all works in threads. They start together, once each waits for the lock of a job."""
    with ThreadPoolExecutor(len(works)) as pool:
        with other.database.begin() as connection:
            lock_jobs(connection, ids)
            done = []
            for work in works:
                done.append(pool.submit(*work))
                until_waiting(connection, len(done))
        return [each.result() for each in done]


def test_results_stored_in_opposite_orders_do_not_deadlock(sharing):
    first, second, other = sharing
    first.batch(2, "batch_1")
    first.batch(2, "batch_2")
    a, b = first.workers[0], second.workers[1]
    given = [a.exchange([], [], 9, resting_jobs=[f"batch_{each}"]) for each in (2, 1)]
    back = [GivenBack(job[1]) for job in given]
    a.exchange([], back, 0)
    others = b.exchange([], [], 9)
    mine = [answered(job[0]) for job in given]
    theirs = [answered(each) for each in reversed(others)]
    at_once(other, ["batch_1", "batch_2"], (a.exchange, mine, [], 0), (b.exchange, theirs, [], 0))
    assert {first.find(f"batch_{each}").status for each in (1, 2)} == {"completed"}


@pytest.mark.parametrize("is_back", [False, True])
def test_storing_results_of_a_job_that_is_being_cancelled_does_not_deadlock(sharing, is_back):
    first, second, other = sharing
    first.batch(2)
    taken = first.workers[0].exchange([], [], 2)
    results = [] if is_back else [answered(each) for each in taken]
    back = [GivenBack(each) for each in reversed(taken)] if is_back else []
    first.jobs.cancel("batch_1", NOW)
    ending = second.endings.end_some, first.find()
    at_once(other, ["batch_1"], ending, (first.workers[0].exchange, results, back, 0))
    job = first.find()
    assert (job.status, job.completed, job.failed) == ("cancelled", 0, 2)


def test_a_call_is_cancelled(database):
    store = Store(database)
    store.call("job_1")
    store.workers[0].exchange([], [], 1)
    store.jobs.cancel("job_1", NOW)
    assert store.endings.end_some(store.find("job_1"))
    assert not store.endings.end_some(store.find("job_1"))
    assert store.find("job_1").status == "cancelled"
    assert store.workers[0].result("job_1") is None
    assert store.announced == [("job_1", "cancelled")]


def test_the_same_idempotency_key_is_the_same_job(database):
    store = Store(database)
    values = {"window": 1, "created_at": NOW, "expires_at": NOW + 1, "idempotency_key": "k"}
    first = store.jobs.add(Job("batch_1", "t", "", True, "/", **values, request_hash="1"))
    again = store.jobs.add(Job("batch_2", "t", "", True, "/", **values, request_hash="2"))
    other = store.jobs.add(Job("batch_3", "u", "", True, "/", **values, request_hash="2"))
    assert (first.id, again, other.id) == ("batch_1", first, "batch_3")
    assert [each.id for each in store.jobs.page("t", "", 9, batches=True)] == ["batch_1"]
    with database.begin() as connection:
        assert open_of(connection, "t") == (1, 0)


def test_a_batch_is_validated_by_one_worker(database):
    store = Store(database)
    values = {"window": 1, "created_at": NOW, "expires_at": NOW + 1}
    store.jobs.add(Job("batch_1", "t", "", True, "/", **values))
    assert store.jobs.claim("a").id == store.jobs.claim("a").id == "batch_1"
    assert store.jobs.claim("b") is None
    store.workers[1].keep_alive(NOW + 30, NOW + 60)
    store.workers[1].keep_alive(NOW + 31, NOW + 61)
    assert store.jobs.claim("b").id == "batch_1"
    store.endings.fail(store.find(), [{"code": "x"}])
    assert store.find().errors == [{"code": "x"}] and store.find().status == "failed"
    assert store.announced == [("batch_1", "failed")]


@pytest.mark.parametrize("how", ["failed", "cancelled", "expired"])
def test_a_batch_that_ends_while_it_is_validated_leaves_nothing_waiting(database, how):
    store = Store(database)
    values = {"window": 60, "created_at": NOW, "expires_at": NOW + 60}
    store.jobs.add(Job("batch_1", "t", "", True, "/", **values))
    a = store.workers[0]
    store.jobs.claim("a")
    assert a.add("batch_1", "t", [NewItem(each, f"c{each}", b"{}") for each in range(3)])
    assert a.count_waiting() == 3
    if how == "failed":
        store.endings.fail(store.find(), [{"code": "x"}])
    elif how == "cancelled":
        store.jobs.cancel("batch_1", NOW)
    else:
        store.jobs.expire(NOW + 60)
    while store.endings.end_some(store.find()):
        pass
    job = store.find()
    assert (job.status, a.count_waiting()) == (how, 0)
    assert job.completed + job.failed == job.total
    assert not a.add("batch_1", "t", [NewItem(3, "c3", b"{}")])


def test_a_validator_that_seemed_dead_cannot_change_its_batch(database):
    store = Store(database)
    values = {"window": 60, "created_at": NOW, "expires_at": NOW + 60}
    store.jobs.add(Job("batch_1", "t", "", True, "/", **values))
    a, b = store.workers
    assert store.jobs.claim("a") and a.clear("batch_1")
    assert a.add("batch_1", "t", [NewItem(1, "c1", b"{}")])
    b.keep_alive(NOW + 30, NOW + 60)
    b.keep_alive(NOW + 31, NOW + 61)
    assert store.jobs.claim("b") and b.clear("batch_1")
    assert not a.add("batch_1", "t", [NewItem(2, "c2", b"{}")])
    assert not a.open("batch_1", 2, "", NOW)
    assert b.add("batch_1", "t", [NewItem(1, "c1", b"{}"), NewItem(2, "c2", b"{}")])
    assert b.open("batch_1", 2, "", NOW) and not b.open("batch_1", 2, "", NOW)
    assert [each.number for each in a.exchange([], [], 9)] == [1, 2]


def test_items_taken_in_a_lost_exchange_are_given_back_without_an_attempt(database):
    store = Store(database)
    store.batch(3)
    a, b = store.workers
    known = a.exchange([], [], 1)
    a.exchange([], [], 1)  # the answer of this exchange was lost
    a.free_lost({(each.job, each.number) for each in known})
    taken = b.exchange([], [], 9)
    assert [(each.number, each.attempts) for each in taken] == [(1, 0), (2, 0)]
    a.exchange([answered(each) for each in known], [], 0)
    assert store.find().completed == 1


def test_an_ended_job_is_forgotten_with_its_results(database):
    store = Store(database)
    store.batch(1)
    [item] = store.workers[0].exchange([], [], 1)
    store.workers[0].exchange([answered(item)], [], 0)
    store.batch(1, "batch_2")
    assert store.forget(NOW + 61, NOW + 59) == 0  # its file is promised until NOW + 60
    assert store.forget(NOW + 61, NOW + 60) == 1
    assert store.find() is None and store.find("batch_2")
    with database.begin() as connection:
        assert connection.execute(select(FILES)).all() == []
        assert connection.execute(select(ITEMS.c.job)).scalars().all() == ["batch_2"]


def done(store, count):
    """A batch of so many answered items."""
    store.batch(count)
    for item in store.workers[0].exchange([], [], count):
        store.workers[0].exchange([answered(item)], [], 0)
    return store.find("batch_1")


def test_a_file_of_results_is_hidden_and_deleted_piece_by_piece(database, monkeypatch):
    monkeypatch.setattr("headway.store.files.PIECE_CLEARED", 1)
    store = Store(database)
    id = done(store, 3).output_file
    assert store.files.expired(NOW, NOW) == []
    for _ in range(3):
        assert store.files.clear_some(id) and store.files.get("t", id) is None
    assert store.files.expired(NOW, NOW) == [id], "the deletion may be cut off here"
    assert not store.files.clear_some(id)
    store.files.delete(id)
    assert store.files.expired(NOW, NOW) == [] and not store.files.clear_some(id)
    upload = store.files.begin("t", NOW)
    assert not store.files.clear_some(upload) and store.files.expired(NOW, NOW) == []


def test_the_items_of_an_old_job_are_deleted_piece_by_piece(database, monkeypatch):
    monkeypatch.setattr("headway.store.files.PIECE_CLEARED", 40)
    store = Store(database)
    job = done(store, 3)
    assert store.jobs.old(NOW + 61, NOW + 60) == [job.id]
    assert [store.jobs.drop_items(job.id) for _ in range(3)] == [True, True, False]
    store.jobs.forget([job.id])
    assert store.find(job.id) is None and store.jobs.old(NOW + 61, NOW + 60) == []


def test_forgetting_a_job_reads_no_deliveries_of_others(tmp_path):
    database, steps = Database(str(tmp_path / "jobs.db")), []
    store = Store(database)
    store.call("job_1")
    [item] = store.workers[0].exchange([], [], 1)
    store.workers[0].exchange([answered(item)], [], 0)
    store.batch(1)
    with database.begin() as connection:
        bodies = [(f"evt_{i}", "http://h/", "{}") for i in range(3_000)]
        add_deliveries(connection, "batch_1", "batch.completed", bodies, NOW)
        driver = connection.connection.driver_connection
    driver.set_progress_handler(lambda: steps.append(1), 100)
    assert store.forget(2**40, NOW, delivers=False) == 1
    driver.set_progress_handler(None, 100)
    assert len(steps) < 100  # hundreds of SQLite's instructions
    database.close()


def test_a_job_is_not_forgotten_before_its_webhooks(database):
    store, deliveries = Store(database), Deliveries(database)
    for each in ("job_1", "job_2"):
        store.call(each)
        store.workers[0].exchange([answered(*store.workers[0].exchange([], [], 1))], [], 0)
    id = delivery_id(NOW)
    with database.begin() as connection:
        add_deliveries(connection, "job_1", "job.completed", [(id, "https://x", "{}")], NOW)
    assert store.forget(NOW + 99, NOW + 99) == 1 and store.find("job_1")
    assert [each.id for each in deliveries.due(NOW + 99, 9)] == [id]
    [due] = deliveries.of_job("job_1")
    deliveries.end(replace(due, due_at=None, problem="status 410"))
    assert store.forget(NOW + 99, NOW + 99) == 1 and not store.find("job_1")


def test_without_endpoints_no_job_waits_for_its_webhooks(database):
    store = Store(database)
    store.call("job_1")
    store.workers[0].exchange([answered(*store.workers[0].exchange([], [], 1))], [], 0)
    with database.begin() as connection:
        add_deliveries(connection, "job_1", "job.completed", [("evt_1", "https://x", "{}")], NOW)
    assert store.forget(NOW + 99, NOW + 99, delivers=False) == 1


def test_those_of_some_jobs_that_have_ended_are_found(database):
    store = Store(database)
    store.batch(1)
    assert store.jobs.ended(["batch_1", "batch_2"]) == []
    store.workers[0].exchange([answered(*store.workers[0].exchange([], [], 1))], [], 0)
    assert store.jobs.ended(["batch_1", "batch_2"]) == ["batch_1"]
    assert store.jobs.ended(["batch_2"]) == []


def test_a_failed_delivery_is_due_again_until_it_is_delivered(database):
    store, deliveries = Store(database), Deliveries(database)
    store.batch(1)
    id = delivery_id(NOW)
    with database.begin() as connection:
        add_deliveries(connection, "batch_1", "batch.completed", [(id, "https://x", "{}")], NOW)
    assert deliveries.due(NOW - 1, 9) == []
    [due] = deliveries.due(NOW, 9)
    assert deliveries.begin(due, NOW + 60) and not deliveries.begin(due, NOW + 60)
    deliveries.end(replace(due, attempts=1, due_at=NOW + 5, problem="status 500"))
    [due] = deliveries.due(NOW + 5, 9)
    assert (due.attempts, due.problem) == (1, "status 500")
    deliveries.end(replace(due, due_at=None, delivered_at=NOW + 6, problem=""))
    assert deliveries.due(NOW + 99, 9) == []
    [kept] = deliveries.of_job("batch_1")
    assert (kept.delivered_at, kept.problem) == (NOW + 6, "")


def test_the_delivery_that_is_due_first_goes_first(database):
    store, deliveries = Store(database), Deliveries(database)
    store.batch(0)
    with database.begin() as connection:
        for id, due in (("evt_1", NOW + 5), ("evt_2", NOW + 4), ("evt_3", NOW + 4)):
            add_deliveries(connection, "batch_1", "batch.completed", [(id, "https://x", "")], due)
    assert [each.id for each in deliveries.due(NOW + 9, 2)] == ["evt_2", "evt_3"]


def test_deliveries_to_some_hosts_are_left_out(database):
    store, deliveries = Store(database), Deliveries(database)
    store.batch(0)
    urls = ["http://a", "http://a/1", "http://a?x=/", "http://a#1", "http://a:80/1", "http://ab/1"]
    with database.begin() as connection:
        bodies = [(f"evt_{at}", url, "") for at, url in enumerate(urls)]
        add_deliveries(connection, "batch_1", "batch.completed", bodies, NOW)
    assert [host_of(url) for url in urls] == [*["http://a"] * 4, "http://a:80", "http://ab"]
    assert [each.url for each in deliveries.due(NOW, 9, ["http://a"])] == urls[4:]
    assert [each.url for each in deliveries.due(NOW, 9, ["http://a:80", "http://ab"])] == urls[:4]


def test_a_failed_transaction_is_a_store_error_and_is_rolled_back(tmp_path):
    store = Store(Database(str(tmp_path / "jobs.db")))
    with pytest.raises(StoreError, match="no such table"), store.database.begin() as connection:
        connection.execute(WORKERS.delete())
        connection.execute(text("INSERT INTO nowhere VALUES (1)"))
    with store.database.begin() as connection:
        assert len(connection.execute(select(WORKERS)).all()) == 2
    store.database.close()


@pytest.mark.parametrize("delivers", ["first", "second"])
def test_a_late_failure_does_not_undo_a_delivery(database, delivers):
    """The first server was stopped during its attempt, so a second server began another."""
    store, deliveries = Store(database), Deliveries(database)
    store.batch(0)
    with database.begin() as connection:
        add_deliveries(connection, "batch_1", "batch.completed", [("evt_1", "https://x", "")], NOW)
    attempts = []
    for at in (NOW, NOW + 61):
        [due] = deliveries.due(at, 9)
        assert deliveries.begin(due, at + 60)
        attempts.append(replace(due, attempts=due.attempts + 1))
    failed, good = attempts if delivers == "second" else reversed(attempts)
    deliveries.end(replace(good, due_at=None, delivered_at=NOW + 62))
    deliveries.end(replace(failed, due_at=NOW + 70, problem="no answer"))
    [kept] = deliveries.of_job("batch_1")
    assert (kept.due_at, kept.delivered_at, kept.attempts) == (None, NOW + 62, 2)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["take", "answer", "answer", "answer", "back", "die", "cancel", "expire"]),
        st.integers(0, 1),
        st.integers(0, 5),
    ),
    min_size=8,
    max_size=40,
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, sizes=st.lists(st.integers(0, 6), min_size=1, max_size=3))
@example(actions=[("take", 1, 1)], sizes=[1])
def test_every_item_ends_once_whatever_its_workers_do(database, actions, sizes):
    with database.begin() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())
    store = Store(database)
    ids = [store.batch(size, f"batch_{at}") for at, size in enumerate(sizes)]
    held = [[], []]
    given = {}
    for what, who, many in actions:
        worker = store.workers[who]
        if what == "take":
            held[who] += worker.exchange([], [], many)
        elif what == "answer":
            done, held[who] = held[who][:many], held[who][many:]
            worker.exchange([answered(each) for each in done], [], 0)
            given |= {(each.job, each.number): who for each in done}
        elif what == "back":
            back, held[who] = held[who][:many], held[who][many:]
            worker.exchange([], [GivenBack(each, counts=many % 2 > 0) for each in back], 0)
        elif what == "die":
            store.workers[1 - who].free_all()
            worker.keep_alive(NOW, NOW + 30)
            event("a worker died" if held[who] else "an idle worker died")
        else:
            store.jobs.cancel(ids[many % len(ids)], NOW) if what == "cancel" else None
            store.jobs.expire(NOW + (60 if what == "expire" and many == 5 else 0))
        for job in store.jobs.having("cancelling", "finalizing"):
            while store.endings.end_some(job):
                event(job.ends_as)
    store.workers[1].exchange([answered(each) for each in held[1]], [], 0)
    for _ in range(40):  # at last one worker answers everything
        store.workers[1].free_all()
        left = store.workers[1].exchange([], [], 99) + store.workers[1].crashed()
        if not left:
            break
        store.workers[1].exchange([answered(each) for each in left], [], 0)
    assert sorted(id for id, _ in store.announced) == sorted(ids)
    for id, size in zip(ids, sizes, strict=True):
        job = store.find(id)
        assert job.has_ended and job.completed + job.failed == job.total == size
        files = [store.content(each) for each in (job.output_file, job.error_file) if each]
        found = [json.loads(line)["custom_id"] for each in files for line in each.splitlines()]
        assert sorted(found) == sorted(f"c{each}" for each in range(size))
