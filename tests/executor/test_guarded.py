"""A failed step ends its own requests and no others."""

from dataclasses import replace
from io import StringIO

import pytest

from headway.core.batch import Batch
from headway.core.commands import Add
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Finish
from headway.engine import Engine
from headway.executor.fake import FakeExecutor
from headway.executor.guarded import GuardedExecutor
from headway.journal import journal
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from headway.sim.replay import replay
from tests.traces import BLOCK, COST, answer, ask, make


class Faulty(FakeExecutor):
    """Fails at some steps, in submit or collect, after it has begun and ended sequences."""

    def __init__(self, blocks: int, steps: set[int], verb: str) -> None:
        super().__init__(blocks, BLOCK)
        self.steps, self.verb = steps, verb

    def submit(self, batch: Batch) -> int:
        ticket = super().submit(batch)
        if self.verb == "submit":
            self._fail(batch.step)
        return ticket

    def collect(self, ticket: int):
        if self.verb == "collect":
            self._fail(ticket)
        return super().collect(ticket)

    def _fail(self, step: int) -> None:
        if step in self.steps:
            raise RuntimeError("out of memory\nand a page of details")


@pytest.mark.parametrize("verb", ["submit", "collect"])
def test_requests_of_a_failed_step_end_with_its_cause_and_later_requests_are_served(verb):
    scheduler, clock, file, events = (
        make(32, Policies(Continuous(2))),
        VirtualClock(),
        StringIO(),
        [],
    )
    journal.begin(scheduler.settings, file)
    asked = [ask(f"r{i}", (1, 1, 1, 1, i), 6) for i in range(6)]
    inbox = TraceInbox([(0, Add(each)) for each in asked], clock)
    guarded = GuardedExecutor(Faulty(32, {1, 4}, verb))
    priced = PricedExecutor(COST, clock, guarded)
    engine = Engine(scheduler, priced, inbox, clock, lambda record: journal.write(record, file))
    while not scheduler.finished:
        events += engine.step()
        scheduler.check()
    said = {each.id: [] for each in asked}
    for event in events:
        said[event.id] += event.tokens
    ends = {event.id: (event.finish, event.error) for event in events if event.finish}
    failed = Finish.ERROR, "the step failed: out of memory"
    whole = Finish.LENGTH, ""
    assert [ends[f"r{i}"] for i in range(6)] == [failed] * 4 + [whole] * 2
    assert [len(said[id]) for id in ("r0", "r2", "r4")] == [0, 2, 6]
    again, _ = replay(*journal.read(file.getvalue().splitlines()))
    assert again.ledger.requests == scheduler.ledger.requests
    assert scheduler.pool.num_free == 32
    assert all(answer(each)[: len(said[each.id])] == said[each.id] for each in asked)


TRIAL = 0  # the number of a step without requests


def test_three_failed_steps_in_a_row_end_the_engine_if_an_empty_trial_step_fails_too():
    scheduler, clock = make(32, Policies(Continuous(1))), VirtualClock()
    inbox = TraceInbox([(0, Add(ask(f"r{i}", (i,), 1))) for i in range(9)], clock)
    guarded = GuardedExecutor(Faulty(32, {1, 2, 4, 5, 6, TRIAL}, "submit"))
    engine = Engine(scheduler, guarded, inbox, clock)
    events = []
    with pytest.raises(RuntimeError, match="out of memory"):
        while True:
            events += engine.step()
    ends = [(event.id, event.finish) for event in events]
    error, length = Finish.ERROR, Finish.LENGTH
    assert ends == [("r0", error), ("r1", error), ("r2", length), ("r3", error), ("r4", error)]


@pytest.mark.parametrize("verb", ["submit", "collect"])
def test_requests_whose_steps_fail_do_not_end_the_engine_if_other_steps_work(verb):
    asked = [ask(f"r{i}", (1, 1, 1, 1, i), 3) for i in range(12)]
    scheduler, clock = make(32, Policies(Continuous(1))), VirtualClock()
    inbox = TraceInbox([(0, Add(each)) for each in asked], clock)
    faulty = Faulty(32, set(range(1, 9)), verb)
    engine, events = Engine(scheduler, GuardedExecutor(faulty), inbox, clock), []
    while not scheduler.finished:
        events += engine.step()
        scheduler.check()
    ends = [event.finish for event in events if event.finish]
    assert ends == [Finish.ERROR] * 8 + [Finish.LENGTH] * 4
    said = [token for event in events for token in event.tokens]
    assert said == [token for each in asked[8:] for token in answer(each)]
    assert scheduler.pool.num_free == 32 and list(faulty.tables) == [11], (
        "no sequence has lost its state"
    )


def test_a_trial_step_with_errors_counts_as_failed():
    class Broken(Faulty):
        def collect(self, ticket: int):
            output = super().collect(ticket)
            return output if ticket else replace(output, errors={0: "numbers are not finite"})

    guarded = GuardedExecutor(Broken(32, {1, 2, 3}, "submit"))
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 2, 2))], 0)
    batch = scheduler.schedule(0)
    for step in (1, 2):
        guarded.collect(guarded.submit(replace(batch, step=step, ended=(0,) if step > 1 else ())))
    with pytest.raises(RuntimeError, match="out of memory"):
        guarded.submit(replace(batch, step=3, ended=(0,)))


def test_an_error_without_a_message_is_reported_by_its_type():
    class Silent(FakeExecutor):
        def submit(self, batch: Batch) -> int:
            raise MemoryError

    guarded = GuardedExecutor(Silent(8, BLOCK))
    assert guarded.collect(guarded.submit(Batch(1))).errors == {}
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 2, 2))], 0)
    batch = scheduler.schedule(0)
    assert guarded.collect(guarded.submit(batch)).errors == {0: "the step failed: MemoryError"}
