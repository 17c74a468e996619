"""Several engines in one virtual time: no event is told before it has happened."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.commands import Add, Cancel
from headway.core.cost.step_cost import StepCost
from headway.core.policies.calls import Calls
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.executor import PricedExecutor
from headway.sim.together import Member, Together


class Relay:
    """Each request goes through all engines in a row. The log keeps all events that are told."""

    def __init__(self, prices, windows=None):
        windows = windows or [0] * len(prices)
        self.log, self.now = [], 0
        self.members = [
            self.member(at, *each) for at, each in enumerate(zip(prices, windows, strict=True))
        ]
        self.numbers = iter(range(10**6))

    def member(self, at, price, window):
        policies = Policies(Calls(2, window, ahead=True), step_tokens=NEVER)
        settings = Settings(16, 1 << 40, policies=policies, depth=2)
        made = StepCost.of(*price)
        return Member(
            Scheduler(settings),
            lambda clock: PricedExecutor(made, clock),
            lambda told: self.hear(at, told),
        )

    def put(self, at, id):
        self.members[at].inbox.put(self.now, [Add(Request(id, (1,), 0, self.now))])

    def arrive(self, now):
        assert now >= self.now
        self.now = now
        self.put(0, f"r{next(self.numbers)}")

    def hear(self, at, told):
        assert told.at >= self.now, "time runs backwards"
        self.now = told.at
        for event in told.events:
            self.log.append((told.at, at, event.id, event.finish.value))
            if at + 1 < len(self.members):
                self.put(at + 1, event.id)

    def run(self, arrivals):
        Together(self.members).run(arrivals, self.arrive)
        return self.log


def test_a_request_passes_from_engine_to_engine_at_the_time_of_its_end():
    relay = Relay([(10, 0), (3, 0)])
    assert relay.run([0, 2]) == [
        (10, 0, "r0", "computed"),
        (13, 1, "r0", "computed"),
        (20, 0, "r1", "computed"),
        (23, 1, "r1", "computed"),
    ]


def test_ends_are_told_in_order_of_time_whatever_was_decided_first():
    """Engine 0 begins a step of 190 ns at 100. Engine 1 ends r0 before the end of that is told."""
    relay = Relay([(10, 90), (4, 0)])
    log = relay.run([0, 1, 2])
    assert log == sorted(log, key=lambda told: told[0])
    assert [(at, who) for at, who, *_ in log] == [(100, 0), (104, 1), (290, 0), (290, 0)] + [
        (294, 1)
    ] * 2


def test_arrivals_are_taken_in_before_the_step_of_the_same_time():
    relay = Relay([(10, 0)])
    assert [id for at, _, id, _ in relay.run([0, 10, 10])] == ["r0", "r1", "r2"]
    rows = relay.members[0].scheduler.ledger
    assert rows.spent == 20, "those who came at 10 are in one step"


def test_a_window_wakes_an_engine_although_nothing_else_happens():
    relay = Relay([(10, 0)], windows=[50])
    assert relay.run([5]) == [(65, 0, "r0", "computed")]


def test_a_command_wakes_an_engine_before_its_window():
    relay = Relay([(10, 0)], windows=[50])
    assert relay.run([5, 20]) == [(30, 0, "r0", "computed"), (30, 0, "r1", "computed")]


def test_a_cancelled_request_is_told_and_takes_no_time():
    relay = Relay([(10, 0)], windows=[50])
    relay.put(0, "mine")
    relay.members[0].inbox.put(0, [Cancel("mine")])
    assert relay.run([]) == [(0, 0, "mine", "cancelled")]


def test_nothing_happens_without_arrivals():
    assert Relay([(10, 0), (1, 1)]).run([]) == []


@pytest.mark.no_cover
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=3),
    st.lists(st.integers(0, 100), max_size=12).map(sorted),
)
def test_every_request_passes_every_engine_once_and_in_time(prices, arrivals):
    relay = Relay(prices)
    log = relay.run(arrivals)
    assert len(log) == len(prices) * len(arrivals) == len({(who, id) for _, who, id, _ in log})
    ends = {}
    for at, who, id, _ in log:
        assert at >= ends.get((who - 1, id), 0) + prices[who][0]
        ends[who, id] = at
    assert Relay(prices).run(arrivals) == log, "again the same"
