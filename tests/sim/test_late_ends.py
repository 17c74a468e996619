"""In overload, the requests that can still end in time are served, and not the oldest ones."""

from dataclasses import replace

import pytest

from headway.core.cost.step_cost import StepCost
from headway.core.lane import REFUSE, RELEGATE, Budget, Lane
from headway.core.policies.relegate import Keep
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate
from headway.strategies.registry import by_budgets
from tests.traces import MS, ask

COST = StepCost.of(10 * MS, per_token=5 * MS)  # four at once are twice as slow as one
SLOTS, ANSWER, GAP = 4, 20, 75 * MS  # four answers take 680 ms: 44 % of the requests that come


def served(policies, late=RELEGATE, count=160):
    lane = Lane("default", Budget(e2e=2_000 * MS), late=late)
    scheduler = Scheduler(Settings(1_000, 16, (lane,), policies, cost=COST))
    asks = [ask(f"r{i}", (i, 1, 2, 3), ANSWER, i * GAP) for i in range(count)]
    simulate(scheduler, arrivals(asks), COST)
    scheduler.check()
    return scheduler.ledger.requests


@pytest.mark.no_cover
@pytest.mark.parametrize("late", [RELEGATE, REFUSE])
def test_in_overload_as_many_end_in_time_as_there_are_slots_for(late):
    rows = served(by_budgets(SLOTS), late)
    assert sum(row.good for row in rows) > 0.4 * len(rows)
    began = [row for row in rows if not row.relegated and row.finish != Finish.REFUSED]
    assert sum(row.good for row in began) > 0.8 * len(began), "who can end in time mostly does"
    kept = served(replace(by_budgets(SLOTS), relegate=Keep()), late)
    assert sum(row.good for row in kept) < 0.2 * len(kept), "the oldest first: all are late"
