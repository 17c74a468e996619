"""Which requests a step checks against the memory forecast, and what follows (Future)."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from headway.core.accounts.rules import Rule
from headway.core.batch import Output, Want
from headway.core.commands import Add, Cancel, Retune
from headway.core.cost.step_cost import StepCost
from headway.core.kv.blocks import BlockPool
from headway.core.lane import Budget, Lane, Line, Share
from headway.core.planning.candidates import MISFITS, Future
from headway.core.planning.plan import Plan
from headway.core.policies.join import Continuous, Static
from headway.core.policies.memory import FILLER_AHEAD, PAUSE, Ahead, Forecast, Lull, Now
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED, Sequence
from headway.core.settings import Settings
from headway.core.view import View
from headway.sim.simulate import simulate
from headway.strategies.registry import by_budgets
from tests.traces import MS, ask

S = 1_000 * MS
COST = StepCost.of(10 * MS, per_token=MS // 50)
CHAT = Lane("chat", Budget(ttft=S, tpot=50 * MS))
LANES = CHAT, Lane("offline", priority=1)
FIRST_COME = Policies(Continuous(32), memory=Ahead(), step_tokens=4_000)


def offline(number, answer=96, arrived=0, prompt=None):
    """A request whose caller says how long the answer will be."""
    prompt = prompt or (number,) * 96
    return ask(f"o{number}", prompt, answer, arrived, lane="offline", expected=answer)


def chat(number, answer=96, arrived=0):
    prompt = (10_000 + number,) * 96
    return ask(f"c{number}", prompt, answer, arrived, lane="chat", expected=answer)


def served(asked, blocks, policies, lanes=LANES):
    """The rows by id. Blocks of 16 tokens."""
    scheduler = Scheduler(Settings(blocks, 16, lanes, policies, cost=COST))
    simulate(scheduler, [(each.arrived, Add(each)) for each in asked], COST)
    scheduler.check()
    return {row.id: row for row in scheduler.ledger.requests}


def budgets(memory=FILLER_AHEAD):
    return replace(by_budgets(32), memory=memory)


@pytest.mark.parametrize(
    "memory, begin", [(FILLER_AHEAD, 5), (Ahead(timed=False, spread=0.0), 7), (Now(), 15)]
)
def test_offline_requests_leave_memory_for_timed_requests_to_come(memory, begin):
    """Four timed requests hold about 400 of 1,920 tokens; an offline request ends with 192. With as
    much again for timed requests to come, 5 offline ones fit; without, 7. The blocks free at first
    are enough for 15."""
    asked = [chat(i) for i in range(4)] + [offline(i, arrived=50 * MS) for i in range(16)]
    rows = served(asked, 120, budgets(memory))
    assert sum(rows[f"o{i}"].first_scheduled <= 150 * MS for i in range(16)) == begin


@pytest.mark.no_cover
def test_a_lanes_kept_slots_and_blocks_need_no_forecast():
    """Two requests that end with 1,496 tokens each, in memory for 1,600."""
    asked = [offline(i, answer=1_400) for i in range(2)]
    rows = served(asked, 100, budgets())
    assert rows["o1"].first_scheduled >= rows["o0"].finished
    for share in ({"slots": Share(least=2)}, {"blocks": Share(least=12)}):
        rows = served(asked, 100, budgets(), (CHAT, Lane("offline", priority=1, **share)))
        assert rows["o1"].first_scheduled == rows["o0"].first_scheduled
    rows = served(asked, 100, budgets(), (CHAT, Lane("offline", blocks=Share(least=11))))
    assert rows["o1"].first_scheduled >= rows["o0"].finished


@pytest.mark.no_cover
def test_timed_requests_join_although_the_filler_may_not():
    """More filler requests wait than a step refuses. Memory holds one of them."""
    asked = [offline(i, prompt=(i,) * 1_400) for i in range(2 * MISFITS)]
    asked += [chat(i, arrived=S + i * 100 * MS) for i in range(8)]
    rows = served(asked, 100, budgets())
    assert all(rows[f"c{i}"].ttft < 100 * MS for i in range(8))


def test_a_step_refuses_few_requests_and_looks_at_none_after_them():
    scheduler = Scheduler(Settings(1_000, 16, LANES, by_budgets(32), cost=COST))
    scheduler.apply([Add(offline(i, answer=3_000)) for i in range(500)], 0)
    ask_whole = Forecast.steps_to_room
    with patch.object(Forecast, "steps_to_room", autospec=True, side_effect=ask_whole) as asked:
        batch = scheduler.schedule(0)
    assert len(batch.rows) == 5, "of 3,096 tokens each, in memory for 16,000"
    assert asked.call_count == 4 + MISFITS, "the first is not asked for one"


def test_where_no_tier_preempts_another_all_sequences_are_forecast_to_end():
    """This is so under first come and in groups. Two timed requests end with 384 tokens and six
    others with 1,152, in memory for 1,680 or more."""
    asked = [*[chat(i) for i in range(2)], *[offline(i, arrived=50 * MS) for i in range(6)]]
    rows = served(asked, 105, FIRST_COME)
    assert all(rows[f"o{i}"].first_scheduled < 100 * MS for i in range(6))
    together = [replace(each, arrived=0) for each in asked]
    rows = served(together, 110, replace(FIRST_COME, join=Static(8)))
    assert len({row.first_scheduled for row in rows.values()}) == 1


@pytest.mark.parametrize("prompts", [1, 2])
def test_a_prompt_that_two_requests_share_counts_once(prompts):
    """Two requests of 960 + 64 tokens, in memory for 1,280."""
    asked = [
        offline(i, answer=64, arrived=i * 100 * MS, prompt=(i % prompts,) * 960) for i in range(2)
    ]
    first, second = served(asked, 80, budgets()).values()
    assert (second.first_scheduled < first.finished) is (prompts == 1)


@pytest.mark.parametrize("shared", [(), (1, 2, 3)], ids=["all its own", "three used by both"])
@pytest.mark.parametrize("stays, blocks", [(False, 19), (True, 24)])
def test_memory_must_hold_the_peak_and_half_a_block_per_sequence(stays, blocks, shared):
    """Blocks of one token. One sequence has 8 tokens and 4 to come, the joining one 6 and 2: when
    that one ends, both hold 18. A third one of 5 stays."""
    made = [
        Sequence(i, ask(f"r{i}", n, k, expected=k), [1] * n) for i, n, k in ((0, 8, 4), (1, 5, 4))
    ]
    runs, other = made
    runs.blocks, other.blocks = [*range(1, 9)], [*range(1, 4), 21, 22]
    joins = Sequence(2, ask("j", 6, 2, expected=2), [1] * 6)
    used = shared if stays else ()
    blocks -= len(used)
    for count, fits in ((blocks, True), (blocks - 1, False)):
        view = View(0, (), num_blocks=count, block_size=1, shared=used)
        forecast = Ahead(spread=0.0).forecast(view, [runs], [other] if stays else ())
        assert (forecast.steps_to_room(joins, 0) == 0) is fits


class Full(Ahead):
    def forecast(self, view, beside, staying=()):
        return Forecast(view.estimates.lengths, 0.5, [], 0)


def test_once_a_tier_is_refused_no_later_tier_joins():
    nobody = SimpleNamespace(running={})
    limits = SimpleNamespace(is_kept_for=lambda each: False, roster=nobody, pool=BlockPool(9, 16))
    view = View(0, (), num_blocks=9, block_size=16)
    policies = replace(by_budgets(4), memory=Full(timed=False))
    made = Future(policies, view, limits, [])
    waiting = {
        tier: Sequence(tier, offline(tier), [1] * 96) for tier in (TIMED, RELEGATED, UNTIMED)
    }
    for tier, each in waiting.items():
        each.tier = tier
    assert not made.has_room(waiting[RELEGATED])
    with patch.object(Full, "forecast", return_value=None):
        for _ in range(2):
            assert not made.has_room(waiting[UNTIMED]), "there would be room"
        assert made.has_room(waiting[TIMED])
        assert Future(policies, view, limits, []).has_room(waiting[UNTIMED])
    assert not made.is_full


def test_a_lull_lasts_until_the_first_refused_request_may_have_room():
    """The refused requests may have room after 5, 3 and 9 steps."""
    lull, line = Lull(), Line(LANES[1])
    roster = SimpleNamespace(running={}, lull=lull)
    limits = SimpleNamespace(is_kept_for=lambda each: False, roster=roster, pool=BlockPool(9, 16))
    limits.holding = set[str]()
    line.waiting = [Sequence(i, offline(i), [1] * 96) for i in range(3)]
    view = View(0, (line,), num_blocks=9, block_size=16)
    policies = replace(by_budgets(4), memory=Full(timed=False))
    future = Future(policies, view, limits, [])
    with patch.object(Forecast, "steps_to_room", side_effect=[5, 3, 9]):
        assert not any(future.has_room(each) for each in line.waiting)
    future.close(dict.fromkeys(line.waiting, Rule.BLOCKS), is_far=False)
    assert [lull.lasts(0, view._replace(step=step)) for step in (2, 3)] == [True, False]


def stepped(scheduler, now, steps=1):
    """Run steps; each row that wants a token gets one."""
    for _ in range(steps):
        batch = scheduler.schedule(now)
        tokens = [(1,) if row.want is Want.LAST else () for row in batch.rows]
        scheduler.commit(batch, Output(tuple(tokens)), now + MS)


def in_a_lull():
    """Memory for 16,000 tokens: five of 3,096 tokens run, and a sixth would be too much."""
    scheduler = Scheduler(Settings(1_000, 16, LANES, by_budgets(32), cost=COST))
    scheduler.apply([Add(offline(i, answer=3_000)) for i in range(40)], 0)
    stepped(scheduler, 0, 2)
    assert len(scheduler.roster.running) == 5
    return scheduler


def asked_in(scheduler, steps=1):
    """How often a forecast is made in `steps` steps."""
    with patch.object(Ahead, "forecast", autospec=True, side_effect=Ahead.forecast) as asked:
        stepped(scheduler, 10 * MS, steps)
    return asked.call_count


def test_in_a_lull_the_forecast_is_made_only_once_per_pause():
    assert asked_in(in_a_lull(), 3 * PAUSE) == 3


def running(scheduler):
    return next(iter(scheduler.roster.running.values()))


@pytest.mark.parametrize(
    "change",
    [
        lambda scheduler: scheduler.apply([Add(offline(99, answer=3_000))], 9 * MS),
        lambda scheduler: scheduler.apply([Cancel("o39")], 9 * MS),
        lambda scheduler: scheduler.apply([Cancel("o0")], 9 * MS),
        lambda scheduler: scheduler.roster.relegate(running(scheduler)),
        lambda scheduler: scheduler.roster.preempt(running(scheduler)),
        lambda scheduler: scheduler.apply([Retune(2, by_budgets(32), LANES)], 9 * MS),
    ],
)
def test_an_arrival_departure_relegation_preemption_or_retune_ends_a_lull(change):
    scheduler = in_a_lull()
    assert asked_in(scheduler) == 0
    change(scheduler)
    assert asked_in(scheduler) > 0
    assert len(scheduler.roster.running) == 5


def test_timed_requests_join_in_a_lull():
    scheduler = in_a_lull()
    scheduler.apply([Add(chat(1))], 9 * MS)
    stepped(scheduler, 10 * MS)
    assert any(each.request.id == "c1" for each in scheduler.roster.running.values())


BLOCKS = Rule.BLOCKS


@pytest.mark.parametrize(
    "waiting, foreseen, rules, far, held, begins",
    [
        (2, 2, [BLOCKS] * 2, False, False, True),
        (2, 2, [BLOCKS, Rule.PREFIX], False, False, False),
        (3, 2, [BLOCKS] * 2, False, False, False),
        (3, 2, [BLOCKS] * 3, False, False, True),
        (3, 0, [BLOCKS] * 3, False, False, True),
        (99, 0, [BLOCKS] * 98, False, False, False),
        (99, 0, [BLOCKS] * 98, True, False, True),
        (99, MISFITS, [BLOCKS] * MISFITS, False, False, True),
        (99, MISFITS, [BLOCKS] * MISFITS, False, True, False),
        (0, 0, [], False, False, False),
    ],
)
def test_a_lull_begins_only_if_memory_alone_is_lacking(waiting, foreseen, rules, far, held, begins):
    """A request that was refused for another reason, not tried, or kept out by its lane may fit in
    the next step. foreseen: how many of the refused lack memory later on, not now."""
    lull = Lull()
    roster = SimpleNamespace(running={}, lull=lull)
    limits = SimpleNamespace(is_kept_for=lambda each: False, roster=roster, pool=BlockPool(9, 16))
    limits.holding = {"chat"} if held else set()
    line = Line(LANES[1])
    line.waiting = [Sequence(i, offline(i), [1] * 96) for i in range(waiting)]
    view = View(0, (line,), num_blocks=9, block_size=16)
    future = Future(replace(by_budgets(4), memory=Full(timed=False)), view, limits, [])
    assert not any(future.has_room(each) for each in line.waiting[:foreseen])
    future.close(dict(zip(line.waiting, rules, strict=False)), is_far=far)
    assert future.is_open(1) is not begins and not future.is_open(0)


def without_blocks(policies):
    """Blocks for 800 tokens: four requests of 96 run. 20 of 480 wait for blocks, not for slots."""
    lanes = CHAT, replace(CHAT, name="voice")
    scheduler = Scheduler(Settings(50, 16, lanes, policies, cost=COST))
    scheduler.apply([Add(chat(i, answer=600)) for i in range(4)], 0)
    stepped(scheduler, 0)
    asked = [ask(f"v{i}", (i,) * 480, 64, lane="voice", expected=64) for i in range(20)]
    scheduler.apply([*map(Add, asked)], 0)
    stepped(scheduler, 0)
    assert len(scheduler.roster.running) == 4
    return scheduler


@pytest.mark.parametrize("policies", [by_budgets(32), replace(FIRST_COME, memory=Now())])
def test_requests_that_lack_free_blocks_are_tried_only_once_per_pause(policies):
    scheduler, each = without_blocks(policies), Plan._try_to_join
    with patch.object(Plan, "_try_to_join", autospec=True, side_effect=each) as tried:
        stepped(scheduler, 0, 2 * PAUSE)
    assert tried.call_count == 2 * 20
    assert len(scheduler.roster.running) == 4


def test_a_lull_ends_once_more_blocks_are_free():
    """Also if they come free after their sequence has left: a step in flight used them."""
    lull, view = Lull(), View(0, (Line(CHAT),), num_blocks=9)
    lull.begin(0, view, 5, NEVER)
    free = [lull.lasts(0, view._replace(step=1, free_blocks=blocks)) for blocks in (4, 5, 6)]
    assert free == [True, True, False]


def test_a_request_joins_in_the_step_that_preempts_another_for_blocks():
    """Four grow until one must give its blocks up. Those that wait for blocks are tried then."""
    scheduler = without_blocks(by_budgets(32))
    while scheduler.pool.num_free > 2:
        stepped(scheduler, 0)
    scheduler.apply([Add(ask("small", (9,) * 49, 8, lane="voice", expected=8))], 0)
    stepped(scheduler, 0)
    while not scheduler.roster.preemptions:
        assert len(scheduler.roster.running) == 4
        stepped(scheduler, 0)
    assert "small" in {each.request.id for each in scheduler.roster.running.values()}


@pytest.mark.parametrize("lane", ["offline", "chat"])
@pytest.mark.parametrize("memory", [FILLER_AHEAD, Ahead()])
def test_a_lull_ends_once_a_waiting_request_may_fit(memory, lane):
    """Memory has 629 blocks of one token. Of two running sequences one has 100 tokens and 500 to
    come, the other 71 and 20. A third of 400 and 60 would be 3 tokens too many when the short one
    ends, but not if it joins 3 steps later. After 5 more steps it would be too much at its own end.
    """
    policies = replace(by_budgets(8), memory=memory)
    scheduler = Scheduler(Settings(629, 1, LANES, policies, cost=COST))
    ends = {"b": (99, 501), "a": (70, 21)}
    asked = [
        ask(id, (9, ord(id)) + (1,) * (size - 2), left, lane="offline", expected=left)
        for id, (size, left) in ends.items()
    ]
    scheduler.apply([*map(Add, asked)], 0)
    stepped(scheduler, 0)
    scheduler.apply([Add(ask("j", (7,) * 400, 60, lane=lane, expected=60))], 0)
    before = scheduler.steps
    while len(scheduler.roster.running) < 3:
        stepped(scheduler, 0)
        assert scheduler.steps < before + 9
