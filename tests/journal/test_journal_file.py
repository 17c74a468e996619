"""A journal on disk: private, in parts, never overwritten, and stopped by a full disk."""

import json
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate

import pytest

import headway
from headway import LLM
from headway.commands.replay.recording import load
from headway.core.settings import Settings
from headway.errors import JournalError
from headway.journal import journal, origin
from headway.journal.file import JournalFile, begun, check
from tests.traces import THRASH, run

LINES = run(THRASH).journal.splitlines()
SETTINGS = Settings(8, 4)
FULL = """
import resource, sys
from pathlib import Path
from headway.core.scheduler import Scheduler
from headway.engine import Engine
from headway.journal.file import JournalFile
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from tests.traces import COST, THRASH, make, spy

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)  # as a full disk
scheduler, clock = make(THRASH.blocks, THRASH.policies, ("bulk", "chat")), VirtualClock()
with JournalFile(Path(sys.argv[1]), scheduler.settings, {}, int(sys.argv[2])) as file:
    priced = PricedExecutor(COST, clock, spy(THRASH.blocks, THRASH.burst))
    engine = Engine(scheduler, priced, TraceInbox(THRASH.timed, clock), clock, file.keep)
    while not scheduler.finished:
        engine.step()
print(len(scheduler.ledger.requests), file.fault)
"""


def records():
    return journal.read(LINES)[1]


def keep(path, part_bytes=0):
    settings = journal.read(LINES)[0]
    with JournalFile(path, settings, {"device": "cpu"}, part_bytes) as file:
        for record in records():
            file.keep(record)
    assert not file.fault
    return file


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_each_record_is_complete_in_the_file_before_it_is_closed(tmp_path):
    settings, kept = journal.read(LINES)
    with JournalFile(tmp_path / "run.jsonl", settings, {"device": "cpu"}) as file:
        for count, record in enumerate(kept, start=2):
            file.keep(record)
            lines = (tmp_path / "run.jsonl").read_text().splitlines()
            assert len(lines) == count, "as a run killed now would leave it"
    assert list(journal.read(lines)[1]) == list(records())
    assert journal.about(lines[0]) == {"device": "cpu", **origin.own()}
    assert origin.own() == {"headway": headway.__version__, "source": origin.source()}


def test_the_source_digest_covers_only_the_code_that_decides(tmp_path, monkeypatch):
    (tmp_path / "core").mkdir()
    files = tmp_path / "engine.py", tmp_path / "core" / "order.py"
    other = tmp_path / "page.py"  # a file that decides nothing
    monkeypatch.setattr(origin, "HOME", tmp_path)

    def changed(file, text):
        before = origin.source.__wrapped__()
        file.write_text(text)
        return before != origin.source.__wrapped__()

    assert all(changed(file, "a = 1") and changed(file, "a = 2") for file in files)
    assert not changed(other, "a = 1")


def test_only_the_owner_may_read_a_journal(tmp_path):
    with umask(0):
        keep(tmp_path / "run.jsonl", part_bytes=2_000)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert modes == {0o600}


def test_a_journal_is_never_overwritten(tmp_path):
    path = tmp_path / "incident.jsonl"
    path.write_text("evidence")
    for attempt in (lambda: JournalFile(path, SETTINGS, {}), lambda: check(path, new=True)):
        with pytest.raises(JournalError, match=r"incident.jsonl is there already.*name another"):
            attempt()
    assert path.read_text() == "evidence"
    with pytest.raises(JournalError, match=r"a.jsonl cannot be written: No such file or directory"):
        JournalFile(tmp_path / "nowhere" / "a.jsonl", SETTINGS, {})
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "elsewhere.jsonl")
    with pytest.raises(JournalError, match=r"link.jsonl is there already"):
        JournalFile(link, SETTINGS, {})
    assert not (tmp_path / "elsewhere.jsonl").exists()


def test_each_start_has_a_file_of_its_own(tmp_path):
    names = []
    for _ in range(3):
        with begun(tmp_path / "run.jsonl", "20260102T030405Z", SETTINGS, {}, 0) as file:
            names.append(file.name)
    stamped = "run-20260102T030405Z"
    assert names == [f"{stamped}.jsonl", f"{stamped}-2.jsonl", f"{stamped}-3.jsonl"]
    assert {each.name for each in tmp_path.iterdir()} == set(names)
    with pytest.raises(JournalError, match="cannot be written"):
        begun(tmp_path / "nowhere" / "run.jsonl", "20260102T030405Z", SETTINGS, {}, 0)


def test_an_impossible_path_is_reported_before_a_model_is_loaded(tmp_path):
    (tmp_path / "file").write_text("")
    for path, words in (
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "a.jsonl", "there is no such folder"),
        (tmp_path / "file" / "a.jsonl", "file is not a folder"),
        (tmp_path / ("a" * 300) / "a.jsonl", "File name too long"),
    ):
        with pytest.raises(JournalError, match=f"cannot be written: {words}"):
            check(path, new=False)
        with pytest.raises(JournalError, match=words):  # before the missing model is noticed
            LLM(tmp_path / "no-model", journal=path)
    check(tmp_path / "file", new=False)
    with pytest.raises(JournalError, match="is there already"):
        LLM(tmp_path / "no-model", journal=tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_an_unwritable_folder_is_reported_before_the_journal_begins(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(JournalError, match="its folder cannot be written to"):
        check(tmp_path / "a.jsonl", new=True)


def test_the_parts_of_a_journal_are_read_as_one(tmp_path):
    whole = keep(tmp_path / "whole.jsonl")
    keep(tmp_path / "run.jsonl", part_bytes=2_000)
    parts = ["run.jsonl", *(f"run.{n}.jsonl" for n in range(2, len(list(tmp_path.iterdir()))))]
    assert {each.name for each in tmp_path.iterdir()} == {"whole.jsonl", *parts} and len(parts) > 2
    sizes = [(tmp_path / each).stat().st_size for each in parts]
    longest = max(map(len, LINES[1:])) + 100
    assert all(2_000 <= size < 2_000 + longest for size in sizes[:-1])
    found, one = load(tmp_path / "run.jsonl"), load(tmp_path / whole.name)
    assert (found.settings, found.about, found.records) == (one.settings, one.about, one.records)
    assert (found.name, found.cut) == ("run.jsonl", False)


def test_a_series_with_a_missing_part_is_refused(tmp_path):
    keep(tmp_path / "run.jsonl", part_bytes=2_000)
    with pytest.raises(JournalError, match=r"run.2.jsonl: this is part 2 of .*first, run.jsonl"):
        load(tmp_path / "run.2.jsonl")
    third = (tmp_path / "run.3.jsonl").read_text()
    lines = (tmp_path / "run.2.jsonl").read_text().splitlines()
    (tmp_path / "run.3.jsonl").unlink()
    words = r"run.3.jsonl, which continues the journal run.jsonl, cannot be read: No such file"
    with pytest.raises(JournalError, match=words):
        load(tmp_path / "run.jsonl")
    (tmp_path / "run.2.jsonl").write_text(third)
    with pytest.raises(JournalError, match=r"run.2.jsonl: this is part 3 of .*part 2 comes here"):
        load(tmp_path / "run.jsonl")
    (tmp_path / "run.2.jsonl").write_text("")
    with pytest.raises(JournalError, match=r"run.2.jsonl: line 1 is not JSON"):
        load(tmp_path / "run.jsonl")
    # The run was killed while it wrote a line of a part, and ends there.
    (tmp_path / "run.2.jsonl").write_text("\n".join(lines[:2]) + "\n[9, ")
    assert load(tmp_path / "run.jsonl").cut


def test_parts_are_searched_only_beside_the_first(tmp_path):
    keep(tmp_path / "run.jsonl", part_bytes=2_000)
    *lines, _ = (tmp_path / "run.jsonl").read_text().splitlines()
    (tmp_path / "there").mkdir()
    path = tmp_path / "there" / "run.jsonl"
    path.write_text("\n".join([*lines, json.dumps({"next": "../run.2.jsonl"})]) + "\n")
    with pytest.raises(JournalError, match="cannot be read: No such file"):
        load(path)


@pytest.mark.parametrize("where", ["record", "turn"])
def test_a_full_disk_stops_the_journal_and_not_the_engine(tmp_path, where):
    """The disk is full in the middle of a record, or where a part names the next one."""
    whole = keep(tmp_path / "whole.jsonl").name
    sizes = accumulate(map(len, (tmp_path / whole).read_text().splitlines(True)))
    size = list(sizes)[20] - len('"device": "cpu", ')
    path, part_bytes = tmp_path / "run.jsonl", size if where == "turn" else 0
    code = [sys.executable, "-c", FULL, str(path), str(part_bytes), str(size + 9)]
    done = subprocess.run(code, capture_output=True, text=True)
    assert done.stdout == "4 File too large\n", "all four requests were served"
    assert "the journal run.jsonl has stopped: File too large" in done.stderr
    found = load(path)
    assert (found.records, found.cut) == (tuple(records())[:20], False)
    assert {each.name for each in tmp_path.iterdir()} == {"run.jsonl", whole}


@pytest.mark.parametrize(
    "odd, fault",
    [({5}, "it has no form for a set"), (10**5_000, "Exceeds the limit")],
    ids=["a set", "too many digits"],
)
def test_a_value_that_cannot_be_written_stops_only_the_journal(tmp_path, caplog, odd, fault):
    whole = tuple(records())
    with JournalFile(tmp_path / "run.jsonl", SETTINGS, {}) as file:
        for record in (*whole[:2], replace(whole[2], host=odd), *whole[3:]):
            file.keep(record)
    assert fault in file.fault and len(caplog.records) == 1, "logged once"
    assert "the journal run.jsonl has stopped" in caplog.text
    assert load(tmp_path / "run.jsonl").records == whole[:2]


def test_a_part_is_never_overwritten(tmp_path, caplog):
    (tmp_path / "run.2.jsonl").write_text("evidence")
    with JournalFile(tmp_path / "run.jsonl", SETTINGS, {}, 2_000) as file:
        for record in records():
            file.keep(record)
    assert file.fault == "File exists" and len(caplog.records) == 1, "logged once"
    assert caplog.records[0].levelname == "ERROR" and caplog.records[0].name == "headway.journal"
    assert (tmp_path / "run.2.jsonl").read_text() == "evidence"
    found = load(tmp_path / "run.jsonl").records
    assert found and found == tuple(records())[: len(found)]
