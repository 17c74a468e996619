"""The times promised at admission, compared with what happens, in seeded virtual time."""

from random import Random

import pytest

from headway.core import scheduler as scheduling
from headway.core.admission import Refuse, admit
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.sequences.roster import Roster
from headway.core.settings import Settings
from headway.engine import Engine
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from tests.traces import MS

SLOTS, PROMPT, ANSWER = 8, 30, 20  # the last two: mean tokens


@pytest.fixture
def promises(monkeypatch):
    """The arrival and the eta of each request, by id."""
    said = {}

    def noted(request, load, now):
        answer = admit(request, load, now)
        if isinstance(answer, Refuse):
            return answer
        said[request.id] = now, answer.eta
        return None

    monkeypatch.setattr(Roster, "has_place", lambda *_: False)  # so `refuse` is always asked
    monkeypatch.setattr(scheduling, "refuse", noted)
    return said


def served(over, count=600):
    """Rows of requests that come `over` times as fast as they can be served, roughly."""
    draw, at, requests = Random(0), 0.0, []
    for i in range(count):
        at += draw.expovariate(over * SLOTS / (ANSWER * 14 * MS))
        prompt = (i,) * draw.randint(1, 2 * PROMPT - 1)
        requests.append(Request(f"r{i}", prompt, draw.randint(1, 2 * ANSWER - 1), int(at)))
    settings = Settings(999, 16, (Lane(max_waiting=60),), Policies(Continuous(SLOTS)))
    scheduler, clock = Scheduler(settings), VirtualClock()
    cost = StepCost.of(5 * MS, per_token=MS // 7)
    inbox = TraceInbox(arrivals(requests), clock)
    engine = Engine(scheduler, PricedExecutor(cost, clock), inbox, clock)
    while not scheduler.finished:
        engine.step()
    return scheduler.ledger.requests


@pytest.mark.no_cover
def test_under_overload_the_promised_time_is_nearly_kept(promises):
    rows = [row for row in served(over=3) if row.id in promises][100:]
    came = [promises[row.id][0] for row in rows]
    told = [promises[row.id][1] for row in rows]
    off = sorted(
        (row.first_token - at) / (eta - at) for row, at, eta in zip(rows, came, told, strict=True)
    )
    print(len(off), [off[int(q * (len(off) - 1))] for q in (0.05, 0.25, 0.5, 0.75, 0.95)])
    assert len(off) > 100 and max(row.ttft for row in rows) > 500 * MS
    assert 0.95 < off[len(off) // 2] < 1.05
    assert off[len(off) // 20] > 0.75 and off[-len(off) // 20] < 1.25
