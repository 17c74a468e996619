"""One step of the loop: what it publishes, what it keeps and when it waits."""

import pytest

from headway.core.batch import Output
from headway.core.commands import Add, Close
from headway.core.policies.calls import Calls
from headway.core.policies.chunk import Whole
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import FEW, Engine, Executor
from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.executor.traits import Traits
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from tests.traces import BLOCK, COST, MS, ask, make


def test_a_step_waits_publishes_its_load_and_records_its_commands():
    clock, kept = VirtualClock(), []
    requests = [ask("a", 6, 2, arrived=3 * MS), ask("b", 2, 1, arrived=90 * MS)]
    scheduler = make(8, Policies(join=Dynamic(2, 20 * MS)))
    executor = PricedExecutor(COST, clock, FakeExecutor(8, BLOCK))
    engine = Engine(scheduler, executor, TraceInbox(arrivals(requests), clock), clock, kept.append)
    assert engine.step() == [] and clock.now() == 3 * MS, "it waits for the first arrival"
    assert engine.step() == [] and engine.load.lanes["default"].waiting == 1
    assert engine.step() == [] and clock.now() == 23 * MS, "it waits for the window, not for b"
    (event,) = engine.step()
    assert event.id == "a" and clock.now() == (23 + 10 + 6) * MS
    load = engine.load
    assert (load.now, load.step, load.running, load.free_blocks) == (39 * MS, 1, 1, 6)
    assert load.lanes["default"].waiting == 0
    assert [(record.step, record.now // MS, record.nanoseconds // MS) for record in kept] == [
        (0, 0, 0),  # no commands and no rows: the scheduler may have looked ahead
        (0, 3, 0),  # commands but no rows
        (0, 3, 0),
        (1, 23, 16),
    ]
    assert kept[1].commands == (Add(requests[0]),) and kept[3].tokens == (event.tokens,)


class Telling(Executor):
    """An executor whose steps are back when the test says so."""

    traits = Traits("a function", steps_in_flight=2, tells_back=True)

    def __init__(self):
        self.rows, self.back = {}, set()

    def submit(self, batch):
        self.rows[batch.step] = len(batch.rows)
        return batch.step

    def is_back(self, ticket):
        return ticket in self.back

    def collect(self, ticket):
        assert ticket in self.back, "nobody waits for a step that is not back"
        return Output(((),) * self.rows.pop(ticket))


class Waited:
    """An inbox that notes the `least` of each wait, and returns at once."""

    def __init__(self):
        self.commands, self.waits = [], []

    def put(self, *ids):
        self.commands += [Add(Request(each, (1,), 0, 0)) for each in ids]

    def poll(self):
        due, self.commands = self.commands, []
        return due

    def wait(self, until, least=1):
        self.waits.append(least)


def telling(**more):
    policies = Policies(Calls(2, ahead=True), chunk=Whole(), step_tokens=NEVER)
    inbox, executor = Waited(), Telling()
    scheduler = Scheduler(Settings(16, 1 << 40, policies=policies, depth=2))
    return Engine(scheduler, executor, inbox, VirtualClock(), **more), inbox, executor


def test_commands_are_taken_in_while_a_step_is_computed():
    engine, inbox, executor = telling()
    assert engine.step() == [] and inbox.waits == [1]
    inbox.put("a")
    assert engine.step() == [] and list(executor.rows) == [1]
    inbox.put("b")
    assert engine.step() == [] and inbox.waits == [1, FEW]
    assert engine.load.lanes["default"].waiting == 1 and list(executor.rows) == [1]
    inbox.put("c", "d")
    assert engine.step() == [] and list(executor.rows) == [1, 2], "two are a whole call"
    engine.step()
    assert list(executor.rows) == [1, 2], "no more than two at once"


def test_the_next_step_is_submitted_before_callers_hear_of_the_last():
    engine, inbox, executor = telling()
    inbox.put("a")
    engine.step()
    inbox.put("b")
    engine.step()
    executor.back.add(1)
    events = engine.step()
    assert list(executor.rows) == [2], "it has been submitted when these are told"
    assert [(event.id, event.finish) for event in events] == [("a", Finish.COMPUTED)]
    inbox.put("c", "d")
    engine.step()
    executor.back |= {2, 3}
    assert [event.id for event in engine.step()] == ["b", "c", "d"]
    inbox.commands = [Close()]
    engine.step()
    assert engine.scheduler.finished


def test_callers_hear_first_if_the_next_step_is_already_in_flight():
    engine, inbox, executor = telling()
    for ids in ("a", "bc"):
        inbox.put(*ids)
        engine.step()
    executor.back.add(1)
    inbox.put("d")
    assert [event.id for event in engine.step()] == ["a"]
    assert inbox.commands, "d is taken in afterwards"
    assert engine.load.running == 2


def test_a_journal_is_refused_for_an_executor_that_tells_of_its_steps():
    with pytest.raises(SettingError, match="cannot repeat the steps of a function"):
        telling(keep=[].append)
