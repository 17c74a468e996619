"""A request that cannot meet its TTFT or E2E limit any more is relegated or refused."""

from dataclasses import dataclass, field, replace
from unittest.mock import patch

import pytest

from headway.core.batch import Event, Output, Want
from headway.core.commands import Add, Cancel, Retune
from headway.core.cost.promise import Promise
from headway.core.cost.promises import RECENT, TRIED
from headway.core.cost.step_cost import StepCost
from headway.core.lane import REFUSE, RELEGATE, TAKE, Budget, Lane
from headway.core.planning.late import relegate
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.policies.relegate import Hopeless, Keep
from headway.core.request import COMPUTED, Finish
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import RELEGATED, TIMED
from headway.core.settings import Settings
from headway.errors import SettingError
from tests.traces import MS, ask

COST = StepCost.of(0, per_token=10, per_pair=0)  # nanoseconds


HOPELESS = Hopeless()
IN_TIME = Budget(ttft=100)


def made(late, relegate=HOPELESS, budget=IN_TIME, slots=1, blocks=8):
    """A scheduler with chunks of four tokens; by default one slot and a TTFT of 100 ns."""
    lane = Lane("default", budget, late=late)
    policies = Policies(Continuous(slots), chunk=Fixed(4), step_tokens=8, relegate=relegate)
    return Scheduler(Settings(blocks, 4, (lane,), policies, cost=COST))


def step(scheduler, now):
    """Run a step that ends at `now`. Returns its events."""
    batch = scheduler.schedule(now)
    if not batch.rows:
        return []
    output = Output(tuple((9,) if row.want & Want.LAST else () for row in batch.rows))
    events = scheduler.commit(batch, output, now)
    scheduler.check()
    return events


def test_a_waiting_request_that_cannot_be_in_time_is_relegated_once_and_served_last():
    scheduler = made(RELEGATE)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 0)
    assert scheduler.apply([], 20) == [], "its 80 ns end in time"
    assert scheduler.apply([Add(ask("hopeful", 2, 1, arrived=21))], 21) == [
        Event("late", relegated=True)
    ]
    assert scheduler.apply([], 22) == []
    line = scheduler.load(22).lanes["default"]
    assert (line.waiting, line.relegated, line.relegated_tokens) == (2, 1, 8)
    ended = []
    for now in range(23, 30):
        ended += [event.id for event in step(scheduler, now) if event.finish]
    assert ended == ["runs", "hopeful", "late"]
    rows = {row.id: row.relegated for row in scheduler.ledger.requests}
    assert rows == {"runs": False, "hopeful": False, "late": True}


@pytest.mark.parametrize("late", [RELEGATE, REFUSE])
def test_a_sibling_of_a_late_request_is_late_at_once(late):
    """Refused later, it would begin to compute the prompt that nobody waits for any more."""
    scheduler = made(late, slots=2)
    first = ask("first", 12, 1)  # 120 ns, where 100 are left
    heard = scheduler.apply([Add(first), Add(first.sibling("second", 1))], 0)
    assert [(each.id, each.relegated) for each in heard] == [
        ("first", late == RELEGATE),
        ("second", late == RELEGATE),
    ]


def test_a_relegated_request_stays_relegated_after_a_retune():
    scheduler = made(RELEGATE)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 0)
    assert scheduler.apply([], 21) == [Event("late", relegated=True)]
    lane = Lane("default", IN_TIME, late=RELEGATE, priority=7)
    assert scheduler.apply([Retune(1, scheduler.settings.policies, (lane,))], 22) == []
    assert scheduler.load(22).lanes["default"].relegated == 1


def test_a_late_waiting_request_is_refused_at_once_by_a_lane_that_refuses():
    scheduler = made(REFUSE)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 0)
    words = "its first token is not expected within 1e-07 s of its arrival"
    assert scheduler.apply([], 21) == [Event("late", (), Finish.REFUSED, words)]
    scheduler.check()
    assert scheduler.roster.waiting == 0
    (row,) = scheduler.ledger.requests
    assert (row.finish, row.relegated, row.good) == (Finish.REFUSED, False, False)


def test_a_request_refused_because_it_would_end_too_late_is_told_so():
    scheduler = made(REFUSE, budget=Budget(e2e=100))
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 5, expected=3))], 0)
    step(scheduler, 0)
    assert scheduler.apply([], 0) == [], "it takes 80 ns to its first token and 20 more"
    words = "its end is not expected within 1e-07 s of its arrival"
    assert scheduler.apply([], 1) == [Event("late", (), Finish.REFUSED, words)]
    scheduler.check()


def test_requests_promised_a_late_first_token_are_refused_before_those_ending_late():
    scheduler = made(REFUSE, budget=Budget(ttft=100, e2e=100))
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1)), Add(ask("told", 4, 1))], 0)
    step(scheduler, 0)
    late, told = (scheduler.roster.by_id[id] for id in ("late", "told"))
    parts = scheduler.settings, scheduler.roster, scheduler.pool, scheduler.view(61)
    assert relegate(*parts, [told]) == (
        [],
        [
            (told, "its first token is not expected within 1e-07 s of its arrival"),
            (late, "its end is not expected within 1e-07 s of its arrival"),
        ],
    )


@pytest.mark.parametrize("late", [RELEGATE, REFUSE])
def test_a_late_preempted_answer_is_relegated_even_by_a_lane_that_refuses(late):
    scheduler = made(late, budget=Budget(e2e=100), slots=2, blocks=4)
    adds = [Add(ask(id, (number,) * 4, 9)) for number, id in enumerate(["a", "begun"])]
    scheduler.apply(adds, 0)
    while not scheduler.roster.preemptions:
        step(scheduler, 0)
    (begun,) = scheduler.roster.lines["default"].waiting
    assert (begun.request.id, begun.generated) == ("begun", 4)
    assert scheduler.apply([], 99) == [Event("begun", relegated=True)], "it cannot end in time"
    while scheduler.roster.by_id:
        step(scheduler, 101)
    rows = {row.id: (row.finish, row.generated, row.relegated) for row in scheduler.ledger.requests}
    assert rows["begun"] == (Finish.LENGTH, 9, True)


def test_a_late_running_prompt_is_relegated_even_by_a_lane_that_refuses():
    scheduler = made(REFUSE)
    scheduler.apply([Add(ask("a", 8, 1))], 0)
    step(scheduler, 50)
    assert scheduler.apply([], 61) == [Event("a", relegated=True)]
    assert step(scheduler, 70) == [Event("a", (9,), Finish.LENGTH)]
    assert scheduler.ledger.requests[0].relegated


def test_a_relegated_request_whose_first_token_came_in_time_is_restored():
    scheduler = made(RELEGATE)
    scheduler.apply([Add(ask("a", 8, 3))], 0)
    step(scheduler, 50)
    assert scheduler.apply([], 61) == [Event("a", relegated=True)]
    (sequence,) = scheduler.roster.running.values()
    step(scheduler, 100)
    assert sequence.tier == RELEGATED
    assert scheduler.apply([], 100) == [] and sequence.tier == TIMED
    step(scheduler, 110)
    step(scheduler, 120)
    (row,) = scheduler.ledger.requests
    assert row.good and row.relegated, "it was, at some time"


def test_a_relegated_waiting_request_is_restored_when_steps_become_faster():
    scheduler = made(RELEGATE)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 0)
    scheduler.apply([], 21)
    line = scheduler.roster.lines["default"]
    (late,) = line.relegated
    with patch.object(scheduler.estimates, "_drift", 980_000):
        assert scheduler.apply([], 21) == []
    assert (line.waiting, line.relegated, line.relegated_tokens) == ([late], [], 0)
    assert scheduler.apply([], 22) == [Event("late", relegated=True)], "and slower"
    scheduler.check()


def test_cached_prompt_tokens_need_no_time():
    """Another request computes a prompt's first block while it waits."""
    scheduler = made(RELEGATE)
    scheduler.apply([Add(ask("runs", 4, 4)), Add(ask("same", 8, 1))], 0)
    same = scheduler.roster.by_id["same"]
    assert same.hit == 0
    step(scheduler, 0)
    assert scheduler.apply([], 60) == [], "four tokens are left to compute"
    assert (same.hit, same.tier) == (4, TIMED)
    assert scheduler.apply([Add(ask("later", 8, 1, arrived=60))], 60) == []
    assert scheduler.roster.by_id["later"].hit == 4
    assert scheduler.apply([], 61) == [Event("same", relegated=True)]
    while scheduler.roster.by_id:
        step(scheduler, 62)
    assert [row.cached for row in scheduler.ledger.requests] == [0, 4, 4]
    assert same.hit == 0, "it counts only while it waits"


@dataclass(frozen=True, slots=True)
class Counting(Hopeless):
    asked: list[int] = field(default_factory=list)  # the times when it was asked

    def relegated(self, view):
        self.asked.append(view.now)
        return Hopeless.relegated(self, view)


def test_many_late_requests_are_looked_up_in_the_cache_and_judged_together():
    """All prompts share a block that was computed while they waited. Those with four tokens left
    are in time, those with five are not."""
    policy = Counting()
    scheduler = made(RELEGATE, policy)
    prompts = [(0, 1, 2, 3, *(10 + i,) * (4 + i % 2)) for i in range(6)]
    waiting = [Add(ask(f"w{i}", prompt, 1)) for i, prompt in enumerate(prompts)]
    scheduler.apply([Add(ask("runs", 4, 4)), *waiting], 0)
    step(scheduler, 0)
    policy.asked.clear()
    told = scheduler.apply([], 55)
    assert [event.id for event in told] == ["w1", "w3", "w5"]
    assert [each.hit for each in scheduler.roster.lines["default"].waiting] == [4, 4, 4]
    assert policy.asked == [55, 55], "however many there are"


def test_late_requests_keep_their_place_in_a_lane_that_takes_them():
    scheduler = made(TAKE)
    scheduler.apply([Add(ask("runs", 8, 1)), Add(ask("late", 8, 1))], 0)
    step(scheduler, 90)
    assert scheduler.apply([], 95) == [], "neither who runs nor who waits"
    ended = []
    for now in (100, 110, 120, 130):
        ended += [event.id for event in step(scheduler, now) if event.finish]
    assert ended == ["runs", "late"]
    assert not any(row.relegated for row in scheduler.ledger.requests)


def crowded(late, **rest):
    """The only slot is held for 20 tokens when a request comes that alone could be in time."""
    scheduler = made(late, **rest)
    scheduler.apply([Add(ask("runs", 4, 20))], 0)
    step(scheduler, 40)
    scheduler.apply([Add(ask("late", 4, 1, arrived=41))], 41)
    step(scheduler, 81)
    return scheduler


def test_a_request_promised_a_late_first_token_is_refused_by_a_lane_that_refuses():
    scheduler = crowded(REFUSE)
    assert scheduler.roster.by_id["late"].promise.first > 141
    words = "its first token is not expected within 1e-07 s of its arrival"
    late = Event("late", (), Finish.REFUSED, words)
    assert late in scheduler.apply([], 82)
    assert late not in scheduler.apply([], 83)
    assert not scheduler.estimates.promises._doubted, "it is late without a correction"
    scheduler.check()


@pytest.mark.parametrize("prompt, finish", [((0,) * 8, Finish.LENGTH), ((7,) * 8, Finish.REFUSED)])
def test_a_request_is_not_refused_for_the_price_of_a_prompt_that_another_computes(prompt, finish):
    """The second first token is promised at 170 ns, as if none of its prompt were shared."""
    scheduler = made(REFUSE, slots=2)
    scheduler.apply([Add(ask("first", (0,) * 8, 1)), Add(ask("second", (*prompt, 1), 1))], 0)
    second = scheduler.roster.by_id["second"]
    for began, ended in ((0, 40), (40, 80), (80, 90)):
        scheduler.apply([], began)
        if (batch := scheduler.schedule(began)).rows:
            output = Output(tuple((9,) if row.want & Want.LAST else () for row in batch.rows))
            scheduler.commit(batch, output, ended)
    assert second.promise.first == 170
    rows = {row.id: (row.finish, row.finished) for row in scheduler.ledger.requests}
    ended = 90 if finish is Finish.LENGTH else 40
    assert rows == {"first": (Finish.LENGTH, 80), "second": (finish, ended)}


def in_pairs(scheduler, count):
    """Whether the second request of each pair is refused. It comes when the first one has its first
    token, waits for that slot, and would have its own first token in 23 of 33 ms."""
    now, refused = 0, []
    for number in range(count):
        scheduler.apply([Add(ask(f"a{number}", 4, 20, now))], now)
        ended = []
        while scheduler.roster.by_id:
            batch = scheduler.schedule(now)
            now += batch.tokens * MS
            output = Output(tuple((9,) if row.want & Want.LAST else () for row in batch.rows))
            scheduler.commit(batch, output, now)
            if not ended:
                scheduler.apply([Add(ask(f"b{number}", 4, 1, now))], now)
            ended += [each.finish for each in scheduler.apply([], now)] or [None]
        refused.append(Finish.REFUSED in ended)
    return refused


def test_a_wrong_correction_of_waits_does_not_refuse_every_request_for_ever():
    """Waits once took ten times as long as predicted. A refused request cannot show that they no
    longer do."""
    lane = Lane("default", Budget(ttft=33 * MS), late=REFUSE)
    policies = Policies(Continuous(1), chunk=Fixed(4), step_tokens=8, relegate=HOPELESS)
    cost = StepCost.of(0, per_token=MS, per_pair=0)
    scheduler = Scheduler(Settings(8, 4, (lane,), policies, cost=cost))
    for _ in range(RECENT):
        scheduler.estimates.promises.first_came("default", Promise(0, after=0, wait=10), 100)
    refused = in_pairs(scheduler, 400)
    assert all(refused[: TRIED - 1]) and not refused[TRIED - 1], "one of sixteen is served"
    assert sum(refused) < RECENT and not any(refused[-200:])


@pytest.mark.parametrize("late", [RELEGATE, TAKE])
def test_a_lane_that_does_not_refuse_keeps_a_request_promised_a_late_first_token(late):
    scheduler = crowded(late)
    scheduler.apply([], 82)
    assert scheduler.roster.by_id["late"].tier == TIMED


@pytest.mark.parametrize(
    "lane",
    [
        Lane("default", IN_TIME),
        Lane("default", IN_TIME, late=TAKE),
        Lane("default", Budget(ttft=10**10), late=REFUSE),
    ],
)
def test_a_retune_refuses_no_request_for_a_promise_of_earlier_settings(lane):
    scheduler = crowded(REFUSE)
    policies = scheduler.settings.policies
    assert scheduler.apply([Retune(1, policies, (lane,))], 82) == []
    kept = crowded(REFUSE)
    assert kept.apply([Retune(1, replace(policies, relegate=Keep()), (lane,))], 82) == []
    assert kept.apply([Retune(2, policies, (lane,))], 83) == []


@pytest.mark.parametrize("late", [RELEGATE, REFUSE, TAKE])
def test_a_request_for_0_tokens_is_never_late_for_its_first_token(late):
    scheduler = made(late)
    scheduler.apply([Add(ask("runs", 2, 3)), Add(ask("scored", 8, 0))], 0)
    step(scheduler, 0)
    assert scheduler.apply([], 21) == [], "its 80 ns do not end within 100"
    for now in range(22, 30):
        step(scheduler, now)
    rows = {row.id: (row.finish, row.good) for row in scheduler.ledger.requests}
    assert rows["scored"] == (COMPUTED, True)


def test_a_cancelled_request_is_not_refused_too():
    scheduler = crowded(REFUSE)
    assert [each.finish for each in scheduler.apply([Cancel("late")], 82)] == [Finish.CANCELLED]


def test_a_policy_that_relegates_nobody_refuses_nobody_for_a_promise():
    scheduler = crowded(REFUSE, relegate=Keep())
    assert scheduler.apply([], 82) == [] and scheduler.newcomers.take_late() == []


def test_a_lane_with_an_unknown_setting_for_late_requests_is_refused():
    with pytest.raises(SettingError, match=r"lane 'a': late is one of .*, not 'drop'"):
        Lane("a", late="drop")
