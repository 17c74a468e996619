"""A journal that is fed back gives the same batches row for row."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings

from headway.core.batch import Row, Want
from headway.core.commands import Add, Cancel, Close, Stop
from headway.core.lane import Budget, Lane
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine
from headway.errors import JournalError
from headway.journal import journal
from headway.journal.record import Record, digest
from headway.sim.replay import JournalInbox, replay
from headway.strategies.registry import by_budgets
from tests.traces import COST, MS, THRASH, Case, Spy, ask, cases, run

# The engine looks ahead while it is idle, and does so anew when each request comes.
APART = [(at * MS, Add(ask(f"r{at}", 4, 9, at * MS, lane="chat"))) for at in range(0, 9_000, 200)]
IDLE = Case(12, by_budgets(2), APART, cost=COST)


def unscored(events):
    """A journal keeps no log-probabilities and no vectors, so events with nothing else are left
    out."""
    plain = [event._replace(prompt_logprobs=(), vector=b"") for event in events]
    return [event for event in plain if event.tokens or event.finish]


@pytest.mark.no_cover
@settings(deadline=None)
@given(cases())
@example(THRASH)
@example(IDLE)
def test_a_replay_makes_the_same_batches_events_and_rows(case):
    first = run(case)
    settings, records = journal.read(first.journal.splitlines())
    assert settings == first.scheduler.settings
    replay = JournalInbox(records)
    executor, scheduler = Spy(replay, []), Scheduler(settings)
    engine, events, loads = Engine(scheduler, executor, replay, replay), [], []
    while replay.left:
        events += engine.step()
        loads.append(engine.load)
    assert loads == first.loads  # so it has learned the same
    assert executor.batches == first.executor.batches
    assert unscored(events) == unscored(first.events)
    assert scheduler.ledger.requests == first.scheduler.ledger.requests
    assert scheduler.ledger.steps == first.scheduler.ledger.steps
    assert scheduler.ledger.changes == first.scheduler.ledger.changes
    assert scheduler.finished


def test_a_run_that_diverges_from_its_journal_says_where():
    settings, records = journal.read(run(THRASH).journal.splitlines())
    first, *rest = records
    with pytest.raises(JournalError, match="idles where the journal has step 1"):
        replay(settings, [replace(first, commands=()), *rest])
    with pytest.raises(JournalError, match="parted from its journal: step 1 has 1 rows where 2"):
        replay(settings, [replace(first, tokens=(*first.tokens, ())), *rest])


def test_a_step_with_other_rows_of_the_same_number_is_named():
    settings, made = journal.read(run(THRASH).journal.splitlines())
    records = list(made)
    (add,) = records[0].commands
    longer = replace(add.request, prompt=(*add.request.prompt, 5))
    with pytest.raises(JournalError, match="step 1 has other rows than are written"):
        replay(settings, [replace(records[0], commands=(Add(longer),)), *records[1:]])
    at = next(n for n, each in enumerate(records) if len(each.tokens) == 4)
    records[at] = replace(records[at], digest=records[at].digest ^ 1)
    with pytest.raises(JournalError, match=f"step {records[at].step} has other rows"):
        replay(settings, records)


def test_a_digest_covers_every_row_and_every_field_of_it():
    rows = [Row(1, 0, (7, 8), (3,), Want.NOTHING), Row(2, 5, (9,), (), Want.LAST)]
    told = {
        digest(each)
        for each in (
            rows,
            rows[::-1],
            rows[:1],
            [rows[0]._replace(sequence=3), rows[1]],
            [rows[0]._replace(start=1), rows[1]],
            [rows[0]._replace(tokens=(7,)), rows[1]],
            [rows[0], rows[1]._replace(want=Want.PROMPT)],
            [],
        )
    }
    assert len(told) == 8 and digest([]) == 0
    assert digest(rows) == digest(tuple(rows))


def test_a_record_is_restored_from_its_line(tmp_path):
    request = ask("a", 3, 2, sampling=Sampling(0.5, stop_tokens=frozenset({5, 3})), salt="t")
    commands = (Add(request), Cancel("b"), Stop("c", 2), Close())
    record = Record(4, 99, commands, 3, ((1, 2), ()), {1: "why"}, 12, 3, 2**32 - 1)
    lanes = (Lane("is", Budget(ttft=5)),)
    settings = Settings(9, 4, lanes, Policies(join=Dynamic(2, 5, {"is": 1})))
    with open(tmp_path / "incident.jsonl", "w") as file:
        journal.begin(settings, file)
        journal.write(record, file)
        journal.write(Record(0, 100, ()), file)
    with open(tmp_path / "incident.jsonl") as file:
        head, records = journal.read(file)
        assert head == settings
        assert list(records) == [record, Record(0, 100, ())]
