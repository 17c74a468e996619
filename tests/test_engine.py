"""One step of the loop: what it publishes, what it keeps and when it waits."""

from headway.core.commands import Add
from headway.core.policies.join import Dynamic
from headway.core.policies.policies import Policies
from headway.engine import Engine
from headway.executor.fake import FakeExecutor
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from tests.traces import BLOCK, COST, MS, ask, make


def test_what_a_step_waits_for_publishes_and_records():
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
        (0, 3, 0),  # commands but no rows
        (1, 23, 16),
    ]
    assert kept[0].commands == (Add(requests[0]),) and kept[1].tokens == (event.tokens,)
