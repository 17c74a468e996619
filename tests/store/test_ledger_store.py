"""The stored ledger, in SQLite and in PostgreSQL: flushes count once, and all sums are exact."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from headway.errors import SettingError
from headway.store.database import Database, StoreError
from headway.store.ledger.check import problems_of
from headway.store.ledger.flush import (
    HOUR,
    MINUTE,
    Account,
    Flush,
    MinuteKey,
    MinutePart,
    SpendKey,
    divide_money,
    money,
)
from headway.store.ledger.ledger_store import LedgerStore, Writer
from headway.store.ledger.ledger_tables import MINUTES, OUTCOMES, REQUESTS, SPEND, WRITERS
from headway.store.ledger.outcomes import Outcome, Outcomes
from headway.store.ledger.reading import LedgerReader, rows_of_call
from headway.store.tables import METADATA

ROOT = Path(__file__).parents[2]
BEGAN = 1_800_000_000 * 10**9
DAY = 20_833
TABLES = REQUESTS, MINUTES, WRITERS
RATE = 3_700_000_001  # billionths per hour; no share of it is a whole number
COUNTED = ("fresh", "cached", "output", "recomputed", "discarded")
WORDS = {
    **dict.fromkeys(("request_id", "tenant", "key", "model", "prompt_version"), ""),
    "operation": "chat",
    "version": 0,
    "workflow": "",
    "attempt": 0,
    "finish": "stop",
    "code": "",
    "good": True,
    "relegated": False,
    "preemptions": 0,
    "ran_before": "[]",
    **dict.fromkeys([f"{e}_tokens" for e in COUNTED], 1),
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def where(request, tmp_path_factory):
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("ledger") / "ledger.db")
    return request.getfixturevalue("new_postgres")()


@pytest.fixture
def database(where):
    found = Database(where)
    with found.begin() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())
    yield found
    found.close()


def row_of(id, at, device_ns, lane="chat", **more):
    wall = device_ns + 5
    return {
        **WORDS,
        "id": id,
        "call": id,
        "lane": lane,
        "arrived": at - wall,
        "wall_ns": wall,
        "minute": at // MINUTE,
        "device_ns": device_ns,
        "device_money": 0,
        "charged": 0,
        "stages": f'{{"decode.own": {wall}}}',
        **more,
    }


class Run:
    """A writer that flushes as a server does. Time passes between flushes, some of it idle."""

    def __init__(self, store, id="w", host="here", pid=1):
        self.store, self.writer = store, Writer(id, host, pid, BEGAN, RATE)
        self.number = self.total = self.open = 0
        self.until = BEGAN
        store.begin(self.writer, BEGAN + MINUTE)

    def flush(self, idle=0, opened=0, ended=(), closes=False, **more):
        """ended: the device nanoseconds of each request that ends in this flush."""
        since, before, device_before = self.until, self.open, self.total
        self.until += idle + opened
        minute = self.until // MINUTE
        parts = {
            MinuteKey(minute, Account.IDLE): MinutePart(idle),
            MinuteKey(minute, Account.OPEN): MinutePart(opened - sum(ended)),
            MinuteKey(minute, Account.REQUESTS, "chat"): MinutePart(sum(ended)),
        }
        divide_money(parts, RATE, self.total)
        self.number += 1
        self.total += idle + opened
        self.open += opened - sum(ended)
        rows = [
            row_of(f"{self.writer.id}-{self.number}-{i}", self.until, ns)
            for i, ns in enumerate(ended)
        ]
        return Flush(
            self.number,
            self.until,
            rows,
            parts,
            device_ns=idle + opened,
            open_ns=opened - sum(ended),
            closes=closes,
            since=since,
            open_before=before,
            device_before=device_before,
            **more,
        )

    def write(self, flush):
        self.store.write(self.writer, flush, self.until + MINUTE)


def problems(where):
    reader = LedgerReader(where)
    found = problems_of(reader)
    reader.close()
    return found


def accounts(database):
    wanted = select(MINUTES.c.account, func.sum(MINUTES.c.nanoseconds)).group_by(MINUTES.c.account)
    with database.begin() as connection:
        return {account: int(ns) for account, ns in connection.execute(wanted)}


def count(database, table):
    with database.begin() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_flush_whose_answer_was_lost_counts_once(where, database):
    run = Run(LedgerStore(database))
    spend = {SpendKey(DAY, "ci", "chat"): 7}
    first = run.flush(10, 30, [20], spend=spend)
    run.write(first)
    run.write(first)
    second = run.flush(1, 5, [15], spend=spend)
    run.write(second)
    run.write(first)
    assert accounts(database) == {"idle": 11, "open": 0, "requests": 35}
    assert run.store.spend_of(DAY, ["other"]) == {SpendKey(DAY, "ci", "chat"): 14}
    assert run.store.spend_of(DAY, ["w"]) == {}
    assert count(database, REQUESTS) == 2 and problems(where) == []


def test_the_open_time_of_a_dead_server_becomes_unrecorded(where, database):
    store = LedgerStore(database)
    run = Run(store, pid=4)
    run.write(run.flush(100, 50, [10]))
    assert store.open_pids("here") == [4] and store.open_pids("there") == []
    now = run.until + 1_000
    assert store.close_dead(False, "here", {4: True}, now) == 0, "it runs"
    assert store.close_dead(False, "there", {}, now) == 0, "it may run, and its lease is not over"
    assert store.close_dead(False, "here", {4: False}, now) == 1
    assert store.close_dead(False, "here", {4: False}, now) == 0
    assert accounts(database) == {"idle": 100, "open": 0, "requests": 10, "unrecorded": 1_040}
    assert problems(where) == []


def test_a_dead_server_whose_pid_another_program_has_is_closed_once_its_lease_is_over(
    where, database
):
    store = LedgerStore(database)
    run = Run(store, pid=4)
    run.write(run.flush(100, 50, [10]))  # its lease is a minute
    assert store.close_dead(False, "here", {4: True}, run.until + MINUTE) == 0
    assert store.close_dead(False, "here", {4: True}, run.until + 2 * MINUTE, ["w"]) == 0, "its own"
    assert store.close_dead(False, "here", {4: True}, run.until + 2 * MINUTE) == 1
    assert accounts(database)["unrecorded"] == 2 * MINUTE + 40 and problems(where) == []


def test_time_begins_once_an_engine_is_ready(where, database):
    store = LedgerStore(database)
    run = Run(store, pid=4)
    for passed in (5, 7):  # seconds of loading
        run.until += passed * 10**9
        run.write(run.flush(0, 0, [0]))
        assert problems(where) == []
        assert store.close_dead(False, "here", {4: False}, run.until + MINUTE) == 1
        assert accounts(database)["unrecorded"] == 0, "no time was lost"
    run.until += 9 * 10**9
    run.write(run.flush(100, 50, [10]))
    with database.begin() as connection:
        began, device_ns = connection.execute(select(WRITERS.c.began, WRITERS.c.device_ns)).one()
    assert (began, device_ns) == (BEGAN + 21 * 10**9, 150)
    assert count(database, REQUESTS) == 3 and problems(where) == []


def test_a_server_that_seemed_dead_takes_its_time_back(where, database):
    store = LedgerStore(database)
    run = Run(store)
    run.write(run.flush(100, 50, [10]))
    assert store.close_dead(False, "there", {}, run.until + 2 * MINUTE) == 1
    assert accounts(database)["unrecorded"] == 2 * MINUTE + 40 and problems(where) == []
    run.write(run.flush(3 * MINUTE, 0, [40], closes=True))
    assert accounts(database) == {
        "idle": 3 * MINUTE + 100,
        "open": 0,
        "requests": 50,
        "unrecorded": 0,
    }
    assert problems(where) == []


def test_time_missing_from_a_restored_backup_becomes_unrecorded(where, database):
    store = LedgerStore(database)
    run = Run(store)
    run.write(run.flush(100, 50, [10]))
    backup = {}
    with database.begin() as connection:
        for table in TABLES:
            rows = connection.execute(select(table)).all()
            backup[table] = [dict(each._mapping) for each in rows]
    run.write(run.flush(7, 30, [20, 20]))
    with database.begin() as connection:
        for table in TABLES:
            connection.execute(table.delete())
            connection.execute(table.insert(), backup[table])
    run.write(run.flush(3, 20, [15]))
    assert accounts(database) == {"idle": 103, "open": 35, "requests": 25, "unrecorded": 47}
    assert problems(where) == []


def test_time_missing_from_a_store_without_the_server_becomes_unrecorded(where, database):
    store = LedgerStore(database)
    run = Run(store)
    run.write(run.flush(100, 50, [10]))
    with database.begin() as connection:
        for table in TABLES:
            connection.execute(table.delete())
    run.write(run.flush(10**9 + 7, 0, [40], closes=True))
    assert accounts(database) == {
        "idle": 10**9 + 7,
        "open": 0,
        "requests": 40,
        "unrecorded": 110,
    }
    assert count(database, WRITERS) == 1 and problems(where) == []


actions = st.lists(
    st.tuples(
        st.integers(0, 3 * MINUTE),
        st.lists(st.integers(0, 10**9), max_size=3),
        st.integers(0, 10**9),
        st.sampled_from(["write", "write", "twice", "killed", "ended"]),
    ),
    max_size=6,
)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions)
def test_sums_are_exact_whatever_happens_to_servers(where, database, steps):
    with database.begin() as connection:
        for table in (REQUESTS, MINUTES, WRITERS):
            connection.execute(table.delete())
    store, number = LedgerStore(database), 0
    run = Run(store, "w0")
    for idle, ended, opened, how in steps:
        flush = run.flush(
            idle, opened + sum(ended), ended, closes=how == "ended" and not (run.open or opened)
        )
        if how != "killed":
            run.write(flush)
        if how == "twice":
            run.write(flush)
        if how in ("killed", "ended"):
            store.close_dead(True, "here", {}, run.until + idle)
            number += 1
            run = Run(store, f"w{number}")
        assert problems(where) == []
    assert store.close_dead(True, "here", {}, run.until) == 1
    sums = accounts(database)
    assert problems(where) == [] and sums.get("open", 0) == 0


def test_a_number_too_large_for_its_column_is_a_store_error_and_stores_nothing(where, database):
    run = Run(LedgerStore(database))
    flush = run.flush(100, 50, [10])
    money, flush.requests[0]["charged"] = flush.requests[0]["charged"], 2**63
    with pytest.raises(StoreError):
        run.write(flush)
    assert count(database, REQUESTS) == count(database, MINUTES) == 0
    flush.requests[0]["charged"] = money
    run.write(flush)
    assert problems(where) == []


def test_a_wrong_sum_is_found(where, database):
    run = Run(LedgerStore(database))
    run.write(run.flush(100, 50, [10]))
    with database.begin() as connection:
        connection.execute(REQUESTS.update().values(device_ns=11, wall_ns=1))
        connection.execute(MINUTES.update().values(money=MINUTES.c.money + 1))
        connection.execute(WRITERS.update().values(device_ns=7, closed=True))
    found = "\n".join(problems(where))
    for said in ("stages of 15 ns in 1 ns", "rows of 11 ns, the minute has 10", "accounts of 150"):
        assert said in found
    assert "it has ended, and 40 ns are open" in found and "money of" in found
    with database.begin() as connection:
        connection.execute(MINUTES.delete())
    assert "the minute has none" in "\n".join(problems(where))


@pytest.mark.parametrize("stages", ["", "x", "[1]", '{"door": null}', '{"door": "1"}'])
def test_a_row_whose_stages_cannot_be_read_is_found(where, database, stages):
    run = Run(LedgerStore(database))
    run.write(run.flush(100, 50, [10]))
    with database.begin() as connection:
        connection.execute(REQUESTS.update().values(stages=stages))
        id = connection.execute(select(REQUESTS.c.id)).scalar_one()
    assert problems(where) == [f"{id}: its stages cannot be read: {stages!r}"]


def test_old_rows_are_forgotten_piece_by_piece_and_the_sums_stay_exact(where, database):
    store = LedgerStore(database)
    run = Run(store)
    spend = {SpendKey(1, "ci", "chat"): 1}
    run.write(run.flush(10, 2_100, [3] * 700, spend=spend))
    for closes in (False, False, True):
        run.write(run.flush(MINUTE, 2_100, [3] * 700, closes=closes))
    Outcomes(database).add(Outcome("", "request", "a", "resolved", None, 5))
    before = BEGAN + 3 * MINUTE
    assert store.forget(before), "there is more"
    assert count(database, REQUESTS) == 1_400 and problems(where) == []
    assert not store.forget(before)
    assert count(database, REQUESTS) == 700 and count(database, MINUTES) == 3
    assert count(database, SPEND) == count(database, OUTCOMES) == 0
    assert problems(where) == [] and count(database, WRITERS) == 1
    store.forget(run.until + MINUTE)
    assert count(database, WRITERS) == count(database, REQUESTS) == 0


def test_a_server_that_has_not_ended_is_not_forgotten(where, database):
    store = LedgerStore(database)
    run = Run(store)
    run.write(run.flush(10, 50, [10]))
    store.forget(run.until + 90 * MINUTE)
    assert count(database, WRITERS) == 1 and count(database, MINUTES) == 0
    run.write(run.flush(100 * MINUTE, 50, [10]))
    assert problems(where) == []


def test_the_sums_of_a_server_down_for_longer_than_rows_are_kept_are_exact(where, database):
    store = LedgerStore(database)
    run, late = Run(store), BEGAN + 90 * MINUTE
    run.write(run.flush(10, 50, [10]))
    assert store.close_dead(True, "here", {}, late) == 1 and problems(where) == []
    assert not store.forget(late - MINUTE)
    assert count(database, MINUTES) == 0 and count(database, WRITERS) == 1
    assert problems(where) == []


def test_missing_minutes_are_found_if_others_as_old_are_kept(where, database):
    runs = [Run(LedgerStore(database), id) for id in "ab"]
    for run in runs:
        run.write(run.flush(10, 50, [10]))
    with database.begin() as connection:
        for table in (MINUTES, REQUESTS):
            connection.execute(table.delete().where(table.c.writer == "b"))
    assert problems(where) == ["b: accounts of 0 ns in 60 ns"]


def test_outcomes_are_idempotent(where, database):
    outcomes = Outcomes(database)
    run = Run(LedgerStore(database))
    mine = {"tenant": "acme", "request_id": "r7", "workflow": "w7"}
    flush = run.flush(1, 30, [20])
    run.write(
        Flush(
            **{n: getattr(flush, n) for n in Flush.__slots__}
            | {"requests": [{**flush.requests[0], **mine}]}
        )
    )
    call = flush.requests[0]["call"]
    assert outcomes.call_of("acme", "r7") == outcomes.call_of("acme", call) == call
    assert outcomes.call_of("bell", "r7") == "" and outcomes.rows_of("bell", call) == []
    assert outcomes.has_workflow("acme", "w7") and not outcomes.has_workflow("bell", "w7")
    assert [row["device_ns"] for row in outcomes.rows_of("acme", call)] == [20]
    for value in (1, 2, 2):
        outcomes.add(Outcome("acme", "request", call, "resolved", value, BEGAN))
    outcomes.add(Outcome("acme", "request", call, "accepted", None, BEGAN))
    with database.begin() as connection:
        found = connection.execute(select(OUTCOMES.c.label, OUTCOMES.c.value).order_by("label"))
        assert [tuple(row) for row in found] == [("accepted", None), ("resolved", 2)]
    reader = LedgerReader(where)
    with reader.begin() as connection:
        assert [row["id"] for row in rows_of_call(connection, "r7")] == [call]
    reader.close()


def test_a_request_id_names_the_sent_attempt_of_the_latest_request(where, database):
    run, sent = Run(LedgerStore(database)), {"stages": '{"sending": 25}'}
    flush = run.flush(1, 90, [20, 20, 20, 30])
    more = [{"call": "c.1"}, {"call": "c.2", **sent}, {"call": "c.3"}, {"call": "d"}]
    arrived = [1, 2, 3, 0]
    for row, each, at in zip(flush.requests, more, arrived, strict=True):
        row |= {"tenant": "acme", "request_id": "r8", "arrived": BEGAN + at, **each}
    run.write(flush)
    outcomes, reader = Outcomes(database), LedgerReader(where)
    for id, call in (("r8", "c.2"), ("c.1", "c.1"), ("d", "d"), ("none", "")):
        assert outcomes.call_of("acme", id) == call
        with reader.begin() as connection:
            assert [row["call"] for row in rows_of_call(connection, id)] == [call][: len(call)]
    reader.close()


def test_money_is_divided_without_a_remainder():
    parts = {MinuteKey(m, Account.IDLE): MinutePart(7) for m in range(1_000)}
    divide_money(parts, HOUR // 3, 5)
    assert sum(p.money for p in parts.values()) == money(HOUR // 3, 7_005) - money(HOUR // 3, 5)
    assert {p.money for p in parts.values()} == {2, 3}


def test_a_reader_sees_one_moment_while_a_server_writes(where, database):
    reader = LedgerReader(where)
    try:
        with reader.begin() as connection:
            count = select(func.count()).select_from(REQUESTS)
            before = connection.execute(count).scalar_one()
            with database.begin() as writing:
                writing.execute(REQUESTS.insert(), [row_of("r1", BEGAN, 5, writer="w")])
            assert connection.execute(count).scalar_one() == before
        with reader.begin() as connection:
            assert connection.execute(count).scalar_one() == before + 1
    finally:
        reader.close()


def test_a_missing_or_empty_ledger_is_refused(tmp_path):
    with pytest.raises(SettingError, match="there is no ledger"):
        LedgerReader(str(tmp_path / "nothing.db"))
    (tmp_path / "empty.db").touch()
    with pytest.raises(SettingError, match="there is no ledger in"):
        LedgerReader(str(tmp_path / "empty.db"))


@pytest.mark.parametrize("folder", ["a#b", "a?b", "a%41b", "a b", "\xe4"])
def test_a_ledger_is_read_from_a_path_with_special_characters(tmp_path, folder):
    (tmp_path / folder).mkdir()
    where = str(tmp_path / folder / "ledger.db")
    database = Database(where)
    run = Run(LedgerStore(database))
    run.write(run.flush(1, 30, [20]))
    assert problems(where) == [] and count(database, REQUESTS) == 1
    database.close()


def test_a_ledger_is_read_in_a_folder_that_takes_no_files(tmp_path, monkeypatch):
    where = tmp_path / "ledger.db"
    database = Database(str(where))
    run = Run(LedgerStore(database))
    run.write(run.flush(1, 30, [20]))

    def beside():
        """The files beside the ledger while it is read."""
        reader = LedgerReader(str(where))
        with reader.begin() as connection:
            assert connection.execute(select(REQUESTS.c.id)).all()
            found = {each.name for each in tmp_path.iterdir()}
        reader.close()
        return found

    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    assert "ledger.db-wal" in beside(), "a server may write to it"
    database.close()
    assert beside() == {"ledger.db", "ledger.db.lock"}


def test_a_writer_that_is_killed_leaves_whole_flushes(where, database):
    with database.begin() as connection:
        for table in (REQUESTS, MINUTES, WRITERS):
            connection.execute(table.delete())
    store, wanted = LedgerStore(database), select(WRITERS.c.flushes).where(~WRITERS.c.closed)
    for number, least in enumerate((1, 6)):
        command = [sys.executable, "-m", "tests.store.ledger_child", where, f"w{number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
            said = [child.stdout.readline() for _ in range(least)]
            child.kill()
            said += child.stdout.readlines()
        whole = max(int(line) for line in said if line.endswith("\n"))
        with database.begin() as connection:
            flushes = connection.execute(wanted).scalar_one()
        assert whole <= flushes <= whole + 1, "what was acknowledged is there"
        assert problems(where) == []
        assert store.close_dead(True, "here", {}, BEGAN + MINUTE) == 1
        assert problems(where) == [] and accounts(database)["open"] == 0
        assert count(database, REQUESTS) >= 3 * flushes
