"""One executor for several runs in sequence."""

from headway.core.commands import Add
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine
from headway.executor.fake import FakeExecutor
from headway.runs.shared_executor import SharedExecutor
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from tests.traces import BLOCK, COST, answer, ask


def serve(shared, request, steps):
    """The events of that many turns of a new engine."""
    clock = VirtualClock()
    settings = Settings(16, BLOCK, policies=Policies(Continuous(2)), depth=2)
    inbox = TraceInbox([(0, Add(request))], clock)
    engine = Engine(Scheduler(settings), PricedExecutor(COST, clock, shared), inbox, clock)
    shared.hand_over()
    return [event for _ in range(steps) for event in engine.step()]


def test_an_interrupted_run_leaves_nothing_in_the_executor_for_the_next():
    fake = FakeExecutor(16, BLOCK, steps_in_flight=2)
    shared = SharedExecutor(fake)
    assert serve(shared, ask("a", 5, 9), 1) == [], "its first step is in flight"
    request = ask("b", 6, 3)
    events = serve(shared, request, 4)
    assert [token for event in events for token in event.tokens] == answer(request)
    assert list(fake.begun) == [0], "the number of both; the first was dropped before"
    shared.hand_over()
    assert shared.traits.steps_in_flight == 2
