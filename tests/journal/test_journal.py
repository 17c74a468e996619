"""An unreadable journal is named with its line, and a diverging run with its step."""

import json
import sys
from io import StringIO

import pytest

from headway.core.commands import Add
from headway.core.grammar import Grammar
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import JournalError
from headway.journal import journal
from headway.journal.record import Record
from headway.sim.replay import replay
from tests.traces import THRASH, ask, run

LINES = run(THRASH).journal.splitlines()


def test_a_replay_repeats_the_whole_run():
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
        (
            0,
            '{"headway_journal": 99}',
            "of version 99; headway .* reads version 10: replay it with",
        ),
        (0, '{"headway_journal": 9}', "of version 9; headway .* reads version 10: replay it with"),
        (0, '{"headway_journal": 10, "settings": {"is": "Close"}}', "line 1 holds no settings"),
        (3, "[3, 17, [", "line 4 is not JSON; was the run cut off there"),
        (3, "[3]", "line 4 is not a step's record"),
        (
            3,
            '[3, 1, [{"is": "Exec"}], 0, [], {}, 0, 0, 0]',
            "line 4 has a 'Exec', which this headway",
        ),
        (3, '[3, 1, [{"is": "Add", "reqest": 1}], 0, [], {}, 0, 0, 0]', "line 4 has a Add that"),
        (3, '[3, 1, [{"is": "Whole"}], 0, [], {}, 0, 0, 0]', "line 4 .*: a command is none"),
        (3, "[3, 1.5, [], 0, [], {}, 0, 0, 0]", "line 4 .*: a number is not a whole one"),
        (3, '[3, 1, [], 0, ["a"], {}, 0, 0, 0]', "line 4 .*: a number is not a whole one"),
        (3, "[3, 1, [], 0, [], {}, -1, 0, 0]", "line 4 .*: a number is below 0"),
        (3, "[3, 1, [], 0, [], {}, 1, 0]", "line 4 is not a step's record"),
        (3, '[3, 1, [], 0, [], {}, 1, 0, "5"]', "line 4 .*: a number is not a whole one"),
        (3, "[3, 1, [], 0, [[5], [-1]], {}, 1, 0, 5]", "line 4 .*: a token is not from 0 to 429"),
        (3, '[3, 1, [{"is": "map"}], 0, [], {}, 0, 0, 0]', "line 4 is not a step's record"),
        (0, '{"headway_journal": 10, "settings": {"is": "map"}}', "line 1 holds no settings"),
    ],
)
def test_a_damaged_line_is_named(line, text, words):
    lines = [*LINES[:line], text, *LINES[line + 1 :]]
    with pytest.raises(JournalError, match=words):
        list(journal.read(lines)[1])


@pytest.mark.parametrize(
    "command, words",
    [
        ({"is": "Add", "request": 5}, "request of Add is not of the type Request"),
        ({"is": "Refuse", "request": 5}, "request of Refuse is not of the type Request"),
        ({"is": "Cancel", "id": 5}, "id of Cancel is not of the type str"),
        ({"is": "Stop", "id": "a", "keep": "3"}, "keep of Stop is not of the type int"),
        ({"max_tokens": "4"}, "max_tokens of Request is not of the type int"),
        ({"prompt": 7}, "prompt of Request is not of the type tuple"),
        ({"prompt": [1, "b"]}, "prompt of Request is not"),
        ({"prompt": [1, -1]}, "a token is not from 0 to 4294967295"),
        ({"prompt": [2**32]}, "a token is not from 0 to 4294967295"),
        ({"end_by": 1.5}, "end_by of Request is not"),
        ({"sampling": 0}, "sampling of Request is not of the type Sampling"),
        ({"sampling": {"is": "Sampling", "top_k": "3"}}, "top_k of Sampling is not"),
        ({"sampling": {"is": "Sampling", "logit_bias": [[1]]}}, "logit_bias of Sampling is not"),
        ({"sampling": {"is": "Sampling", "bad_words": [["a"]]}}, "bad_words of Sampling is not"),
    ],
)
def test_an_impossible_command_is_named_with_its_line(command, words):
    if "is" not in command:
        asked = {"is": "Request", "id": "a", "prompt": [1], "max_tokens": 4, "arrived": 0}
        command = {"is": "Add", "request": asked | command}
    line = json.dumps([3, 1, [command], 0, [], {}, 0, 0, 0])
    with pytest.raises(JournalError, match=f"line 4 is not a step's record: {words}"):
        list(journal.read([*LINES[:3], line])[1])


def test_every_field_of_a_request_is_restored():
    sampling = Sampling(
        temperature=1, stop_tokens=frozenset({3, 5}), logit_bias=((1, 2), (4, -0.5)),
        bad_words=((1, 2), (3,)), grammar=Grammar("regex", "a+"),
    )  # fmt: skip
    command = Add(ask("a", 3, 2, sampling=sampling, salt="tenant", follows="b", end_by=9))
    file = StringIO()
    journal.begin(Settings(8, 4), file)
    journal.write(Record(0, 5, (command,)), file)
    (record,) = list(journal.read(file.getvalue().splitlines())[1])
    assert record.commands == (command,)


def test_a_prompt_is_written_and_read_without_a_call_per_token():
    """A prompt of 100,000 tokens once took 84 ms of the engine's thread."""
    record = Record(1, 5, (Add(ask("a", 50_000, 2)),))
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        line = journal.line_of(record)
        (again,) = journal.read([LINES[0], line])[1]
    finally:
        sys.setprofile(None)
    assert again == record and len(calls) < 10_000


def test_the_heads_facts_about_the_run_are_restored():
    file = StringIO()
    journal.begin(Settings(8, 4), file, {"model": "tiny"})
    assert journal.about(file.getvalue()) == {"model": "tiny"}
    assert journal.about(LINES[0]) == {}
    with pytest.raises(JournalError, match="nothing that can be understood"):
        journal.about('{"headway_journal": 10, "about": 3}')


def test_an_empty_journal_is_refused():
    with pytest.raises(JournalError, match="line 1 is not JSON"):
        journal.read([])


def test_a_run_that_diverges_from_its_journal_is_stopped():
    settings, records = journal.read(LINES)
    other = Settings(settings.num_blocks + 9, settings.block_size, settings.lanes)
    with pytest.raises(JournalError, match="the run has parted from its journal: step"):
        replay(other, records)


def test_a_step_that_only_the_journal_has_is_named():
    file = StringIO()
    settings = Settings(8, 4)
    journal.begin(settings, file)
    journal.write(Record(0, 5, (Add(ask("a", 3, 2)),)), file)
    (record,) = list(journal.read(file.getvalue().splitlines())[1])
    replayed = Scheduler(settings)
    replayed.apply(record.commands, record.now)
    assert replayed.schedule(5).rows, "the record has no rows"
    with pytest.raises(JournalError, match="step 1 is decided where none is written"):
        replay(*journal.read(file.getvalue().splitlines()))
    idle = [LINES[0], *[json.dumps([1, 9, [], 1, [[5]], {}, 3, 0, 0])]]
    with pytest.raises(JournalError, match="the engine idles where the journal has step 1"):
        replay(*journal.read(idle))
