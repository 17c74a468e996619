"""A journal that cannot be read says which line, and one that a run has parted from which step."""

import json
from io import StringIO

import pytest

from headway import journal
from headway.core.batch import Add
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import JournalError
from headway.sim.replay import replay
from tests.traces import THRASH, ask, run

LINES = run(THRASH).journal.splitlines()


def test_a_replay_is_the_whole_run():
    scheduler, events = replay(*journal.read(LINES))
    first = run(THRASH)
    assert events == first.events
    assert scheduler.ledger.requests == first.scheduler.ledger.requests
    assert scheduler.ledger.steps == first.scheduler.ledger.steps


@pytest.mark.parametrize(
    "line, text, words",
    [
        (0, "", "line 1 is not JSON"),
        (0, "[]", "line 1 is not the head"),
        (0, '{"headway_journal": 99}', "not the head of a journal of version 1"),
        (0, '{"headway_journal": 1, "settings": {"is": "Close"}}', "line 1 holds no settings"),
        (3, "[3, 17, [", "line 4 is not JSON; was the run cut off there"),
        (3, "[3]", "line 4 is not a step's record"),
        (3, '[3, 1, [{"is": "Exec"}], [], {}, 0]', "line 4 has a 'Exec', which this headway"),
        (3, '[3, 1, [{"is": "Add", "reqest": 1}], [], {}, 0]', "line 4 has a Add that cannot"),
    ],
)
def test_a_bad_line_is_named(line, text, words):
    lines = [*LINES[:line], text, *LINES[line + 1 :]]
    with pytest.raises(JournalError, match=words):
        list(journal.read(lines)[1])


def test_an_empty_journal_has_no_head():
    with pytest.raises(JournalError, match="line 1 is not JSON"):
        journal.read([])


def test_a_run_that_parts_from_its_journal_is_stopped():
    settings, records = journal.read(LINES)
    other = Settings(settings.num_blocks + 9, settings.block_size, settings.lanes)
    with pytest.raises(JournalError, match="the run has parted from its journal: step"):
        replay(other, records)


def test_a_step_that_the_journal_has_and_the_run_has_not():
    file = StringIO()
    settings = Settings(8, 4)
    journal.begin(settings, file)
    journal.write(journal.Record(0, 5, (Add(ask("a", 3, 2)),)), file)
    (record,) = list(journal.read(file.getvalue().splitlines())[1])
    replayed = Scheduler(settings)
    replayed.apply(record.commands, record.now)
    assert replayed.schedule(5).rows, "the record says that nothing was to be done"
    with pytest.raises(JournalError, match="step 1 of 1 rows where step 0 of 0 is written"):
        replay(*journal.read(file.getvalue().splitlines()))
    idle = [LINES[0], *[json.dumps([1, 9, [], [[5]], {}, 3])]]
    with pytest.raises(JournalError, match="the engine idles where the journal has step 1"):
        replay(*journal.read(idle))
