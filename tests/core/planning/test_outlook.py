"""Promised times of first tokens: exact, where nothing is left to chance."""

from dataclasses import replace

import pytest

from headway.core.batch import Output, Want
from headway.core.commands import Add, Cancel
from headway.core.cost.lengths import ENOUGH, LEARNED
from headway.core.cost.promise import Promise
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.load import LaneLoad
from headway.core.planning.newcomers import EVERY, LOOK
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.defer import WithoutDeadline
from headway.core.policies.join import Continuous, Dynamic, Static
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.order import Priority
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.request import NEVER, Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from tests.traces import COST, MS, ask

ONE = (Lane(),)
MANY = 11 * MS // LOOK  # if more wait, they are not looked at in each step of 11 ms
SHORT = StepCost.of(2_000)
PLAIN = Policies(Continuous(4), chunk=Fixed(4), step_tokens=8)
CHAT, BULK = Lane("chat", Budget(ttft=10**10, tpot=10**9)), Lane("bulk", priority=1)


def served(*requests, policies=PLAIN, blocks=99, lanes=ONE, cost=COST, others=()):
    """The row of each request by id, and the events. Steps take exactly their price."""
    scheduler, clock = Scheduler(Settings(blocks, 4, lanes, policies, cost=cost)), VirtualClock()
    timed = sorted([*((each.arrived, Add(each)) for each in requests), *others], key=lambda t: t[0])
    priced, events = PricedExecutor(COST, clock), []
    engine = Engine(scheduler, priced, TraceInbox(timed, clock), clock)
    while not scheduler.finished:
        events += engine.step()
        scheduler.check()
    return {row.id: row for row in scheduler.ledger.requests}, events


def other(id, prompt, most, **rest):
    """A request that has no prefix in common with another."""
    return ask(id, tuple(1_000 * (1 + sum(map(ord, id))) + i for i in range(prompt)), most, **rest)


def on_time(rows):
    return {id: row.first_error for id, row in rows.items()}


def test_a_prompt_of_one_step_is_promised_its_first_token_at_the_steps_end():
    rows, events = served(other("a", 4, 3))
    row = rows["a"]
    assert row.promised_first == row.first_token == 14 * MS
    spent = 14 * MS + 2 * 14 * MS  # no answer has shown a pace yet
    assert row.promised_end == spent * 3 // 2, "nor how much later than predicted they end"
    assert events[0] == events[0]._replace(tokens=(), promise=(14 * MS, 63 * MS))
    assert [event.promise for event in events[1:]] == [()] * 3


@pytest.mark.parametrize("chunk", [Fixed(2), Fixed(3), Fixed(4), Whole()])
def test_promises_are_exact_for_prompts_computed_one_after_another_in_chunks(chunk):
    rows, _ = served(
        other("a", 12, 1), other("b", 4, 1), policies=replace(PLAIN, chunk=chunk, step_tokens=4)
    )
    assert on_time(rows) == {"a": 0, "b": 0}


@pytest.mark.parametrize("chunk", [Fixed(4), Fixed(8)])
@pytest.mark.parametrize("mix", [Mixed(), PrefillFirst()])
def test_promises_count_the_part_that_decodes_take_of_each_step(mix, chunk):
    policies = replace(PLAIN, mix=mix, chunk=chunk)
    rows, _ = served(other("runs", 4, 30), other("b", 15, 1, arrived=MS), policies=policies)
    assert on_time(rows) == {"runs": 0, "b": 0}


@pytest.mark.parametrize("blocks", [99, 9], ids=["plenty", "too few for each to have its own"])
def test_a_promise_counts_a_prompt_that_several_choices_share_once(blocks):
    """Beside the first choice, each of the others computes the prompt's last token."""
    first, behind = other("a", 9, 1), other("b", 4, 1)
    choices = [first.sibling(f"a{i}", i) for i in range(3)]
    policies = replace(PLAIN, join=Continuous(8))
    alone, _ = served(first, behind, policies=policies, blocks=blocks)
    rows, _ = served(first, *choices, behind, policies=policies, blocks=blocks)
    assert rows["b"].promised_first == alone["b"].promised_first + 3 * MS


def beside(asked, cost=COST, slots=4, lanes=ONE):
    """The promise to a request that comes when another has had its first token, how long its prompt
    takes, and the estimates."""
    policies = replace(PLAIN, join=Continuous(slots))
    scheduler = Scheduler(Settings(99, 4, lanes, policies, cost=cost))
    scheduler.apply([Add(other("runs", 4, 9))], 0)
    scheduler.commit(scheduler.schedule(0), Output(((7,),)), 14 * MS)
    scheduler.estimates.promises.paces.ended("default", 10 * 40 * MS, 10)
    scheduler.apply([Add(asked)], 14 * MS)
    (made,) = scheduler.newcomers._new
    work = scheduler.estimates.work(made)
    scheduler.schedule(14 * MS)
    return made.promise, work, scheduler.estimates


def test_promises_count_one_more_key_for_a_decode_in_each_step():
    cost = replace(COST, device=replace(COST.device, read=MS * 1_000))
    promise, work, estimates = beside(other("b", 12, 1), cost)
    assert promise.wait == work * 8 // 12 + 2 * estimates.decoding(1, 6), "the next is the sixth"


CAPPED = (Lane(slots=Share(0, 1)),)  # one slot, however many the engine has


@pytest.mark.parametrize("slots, lanes", [(1, ONE), (4, CAPPED)], ids=["engine", "lane"])
def test_a_promise_expects_a_free_slot_at_the_pace_of_the_lanes_answers(slots, lanes):
    """After this step the running answer has seven tokens to go."""
    promise, _, _ = beside(other("b", 4, 1), slots=slots, lanes=lanes)
    assert promise.wait == 7 * 40 * MS + 14 * MS


def test_requests_that_their_lane_keeps_out_do_not_delay_the_promises_of_other_lanes():
    lanes = (replace(CHAT, slots=Share(0, 1)), BULK)
    asked = [other(f"r{i}", 4, 9, lane="chat") for i in range(4)]  # the first fills a step
    rows, _ = served(*asked, other("b", 4, 1, lane="bulk"), lanes=lanes)
    assert rows["r0"].first_error == rows["b"].first_error == 0


@pytest.mark.parametrize("slots, wait", [(1, 7 * 40 + 14), (4, 4 + 11)])
def test_the_eta_of_a_lane_counts_the_slots_that_it_has_at_present(slots, wait):
    """Between one and four, as the load allows. An answer runs; with a slot free, a prompt of four
    tokens takes a step beside it."""
    lane = Lane(budget=CHAT.budget, slots=Share(0, 4, 1))
    scheduler = Scheduler(Settings(99, 4, (lane,), PLAIN, cost=COST))
    scheduler.apply([Add(other("runs", 4, 9))], 0)
    scheduler.estimates.promises.paces.ended("default", 10 * 40 * MS, 10)
    for _ in range(ENOUGH):
        scheduler.estimates.promises.made("default", 4, Promise(0, span=1, basis=LEARNED))
    scheduler.commit(scheduler.schedule(0), Output(((7,),)), 14 * MS)
    scheduler.roster.lines["default"].slots = slots
    scheduler.newcomers._lanes_seen = -EVERY
    assert scheduler.schedule(14 * MS).rows
    assert scheduler.load(14 * MS).lanes["default"].eta == (11 + wait) * MS


def test_promises_count_alternating_steps_in_pairs():
    policies = replace(PLAIN, mix=Alternate())
    rows, _ = served(other("runs", 4, 30), other("b", 8, 1, arrived=MS), policies=policies)
    assert rows["b"].first_error == -11 * MS, "this step decodes, so one pair has its half already"


def test_promises_follow_the_order_policy_and_not_the_arrival():
    policies = replace(PLAIN, order=Priority())
    asked = other("late", 4, 1, lane="bulk"), other("soon", 8, 1, lane="chat")
    rows, _ = served(*asked, policies=policies, lanes=(BULK, replace(CHAT, priority=0)))
    assert on_time(rows) == {"late": 0, "soon": 0}
    assert rows["late"].first_token > rows["soon"].first_token


def test_promises_count_a_lanes_own_chunk():
    rows, _ = served(other("a", 6, 1), lanes=(Lane(chunk=2),))
    assert on_time(rows) == {"a": 0}
    assert rows["a"].first_token == 36 * MS


def test_promises_count_the_most_tokens_of_a_step_that_a_lane_may_have():
    """Three in all: beside an answer of the lane, two of the prompt."""
    lanes = (replace(CHAT, step_tokens=Share(0, 3)), BULK)
    asked = other("runs", 3, 30, lane="chat"), other("a", 8, 1, arrived=MS, lane="chat")
    rows, _ = served(*asked, lanes=lanes)
    assert on_time(rows) == {"runs": 0, "a": 0}
    assert rows["a"].first_token == 13 * MS + 4 * 13 * MS


def test_a_promise_expects_a_slot_when_the_first_running_answer_ends():
    policies = replace(PLAIN, join=Continuous(2))
    asked = other("long", 2, 9), other("short", 2, 5), other("waits", 2, 1)
    rows, _ = served(*asked, policies=policies)
    assert rows["waits"].first_error == -rows["waits"].promised_first + rows["waits"].first_token
    assert abs(rows["waits"].first_error) <= 10 * MS, "a step of two rows is priced as one of two"
    assert rows["waits"].first_scheduled == rows["short"].finished


@pytest.mark.parametrize("slots, lanes", [(1, ONE), (4, CAPPED)], ids=["engine", "lane"])
def test_promises_cover_more_waiting_requests_than_slots(slots, lanes):
    policies = replace(PLAIN, join=Continuous(slots))
    rows, _ = served(*[other(f"r{i}", 2, 5) for i in range(4)], policies=policies, lanes=lanes)
    errors = [rows[f"r{i}"].first_error for i in range(4)]
    assert errors[:2] == [0, 0]
    firsts = [rows[f"r{i}"].promised_first for i in range(4)]
    assert firsts == sorted(firsts) and firsts[3] > 3 * firsts[1] // 2


@pytest.mark.parametrize("preempt", [Youngest(), ByLane()])
def test_a_promise_expects_blocks_when_answers_end(preempt):
    asked = other("holds", 8, 8), other("waits", 14, 1)
    policies = replace(PLAIN, chunk=Whole(), step_tokens=20, preempt=preempt)
    rows, _ = served(*asked, blocks=5, policies=policies)
    assert rows["waits"].first_scheduled == rows["holds"].finished
    assert on_time(rows) == {"holds": 0, "waits": 0}


def test_a_request_that_may_preempt_is_promised_no_wait_for_slots_and_blocks():
    policies = replace(
        PLAIN, join=Continuous(1), order=ByDeadline(), preempt=ByLane(), defer=WithoutDeadline()
    )
    asked = other("fills", 4, 20, lane="bulk"), other("soon", 8, 1, arrived=20 * MS, lane="chat")
    rows, _ = served(*asked, policies=policies, lanes=(CHAT, BULK), blocks=8)
    assert rows["fills"].preemptions == 1
    assert rows["soon"].first_error == 0


def test_a_promise_counts_blocks_that_other_victims_give_in_the_next_step():
    """Two filler requests hold four of eight blocks each. A timed one takes those of the first and
    fills the chunk; the next timed one takes those of the other."""
    policies = replace(PLAIN, order=ByDeadline(), preempt=ByLane(), defer=WithoutDeadline())
    fills = [other(id, 12, 4, lane="bulk") for id in ("fills", "fills too")]
    soon = other("soon", 13, 15, arrived=50 * MS, lane="chat")
    then = other("then", 8, 1, arrived=50 * MS, lane="chat")
    policies = replace(policies, chunk=Fixed(12), step_tokens=12)
    rows, _ = served(*fills, soon, then, policies=policies, lanes=(CHAT, BULK), blocks=8)
    assert all(rows[each.id].preemptions for each in fills)
    assert rows["then"].first_error == 0


def test_promises_count_steps_as_long_as_the_slack_allows():
    policies = replace(PLAIN, chunk=BySlack(least=1, stretch=2, sure=0.5), step_tokens=99)
    asked = other("runs", 4, 30, lane="chat"), other("b", 200, 1, arrived=20 * MS, lane="chat")
    rows, _ = served(*asked, policies=policies, lanes=(CHAT,))
    assert on_time(rows) == {"runs": 0, "b": 0}
    tight = replace(policies, chunk=BySlack(least=50, stretch=1))
    rows, _ = served(other("a", 200, 1, lane="chat"), policies=tight, lanes=(CHAT,))
    assert rows["a"].first_error == 0, "the least, whatever the time"


def test_a_request_for_0_tokens_is_promised_only_its_end():
    rows, events = served(other("a", 10, 0))
    row = rows["a"]
    assert (row.promised_first, row.first_error) == (NEVER, NEVER)
    assert row.promised_end == row.finished * 3 // 2 and row.was_promised and row.kept_promise
    assert events[0].promise == (NEVER, row.promised_end)


@pytest.mark.parametrize("most", [3, 0])
def test_a_siblings_promise_counts_the_blocks_of_its_leader(most):
    first = other("a", 8, most)
    rows, _ = served(first, replace(first.sibling("b", 1), max_tokens=2))
    assert abs(rows["b"].first_error) <= 5 * MS, "a block of its prompt is not shared"


@pytest.mark.parametrize("join", [Static(2), Dynamic(2, 50 * MS)])
def test_a_group_is_promised_its_times_when_it_starts(join):
    first = other("a", 8, 3)
    asked = first, first.sibling("b", 1), other("c", 4, 2, arrived=MS)
    rows, events = served(*asked, policies=replace(PLAIN, join=join))
    assert all(row.was_promised for row in rows.values())
    told = [event.id for event in events if event.promise]
    assert told == ["a", "b", "c"]
    assert rows["c"].promised_first > rows["a"].finished


def test_a_group_answered_together_is_promised_one_time():
    join = Static(2, together=True)
    asked = other("a", 4, 2), other("b", 4, 5)
    rows, _ = served(*asked, policies=replace(PLAIN, join=join, chunk=Whole()))
    one, two = rows["a"], rows["b"]
    assert one.promised_first == one.promised_end == two.promised_first == two.promised_end
    assert one.kept_promise and two.kept_promise
    scoring = other("c", 4, 0)
    rows, _ = served(scoring, policies=replace(PLAIN, join=join))
    assert rows["c"].promised_first == NEVER


def test_the_eta_of_a_lane_is_that_of_a_request_that_came_now():
    policies = replace(PLAIN, join=Continuous(1))
    scheduler = Scheduler(Settings(999, 4, (CHAT, BULK), policies, cost=COST))
    clock = VirtualClock()
    asked = [other(f"r{i}", 4, 2, arrived=i * 100 * MS, lane="chat") for i in range(ENOUGH)]
    asked += [other("runs", 4, 400, arrived=2_000 * MS, lane="chat")]
    priced = PricedExecutor(COST, clock)
    inbox = TraceInbox([(each.arrived, Add(each)) for each in asked], clock)
    engine = Engine(scheduler, priced, inbox, clock)
    while clock.now() < 1_900 * MS:
        engine.step()
    idle = engine.load.lanes
    assert (idle["chat"].eta, idle["chat"].eta_prompt) == (14 * MS, 4)
    assert (idle["bulk"].eta, idle["bulk"].eta_prompt) == (NEVER, 0), "it had no prompts yet"
    seen = list[LaneLoad]()
    while clock.now() < 2_000 * MS + 200 * 11 * MS:
        engine.step()
        seen.append(engine.load.lanes["chat"])
        assert engine.load.now - seen[-1].eta_at <= EVERY * 12 * MS
    early, late = seen[EVERY + 1], seen[-1]
    assert early.eta > 3_000 * MS, "there is no slot before the running answer has ended"
    assert late.eta < early.eta - 1_000 * MS, "nobody came, and the answer has got further"
    assert scheduler.roster.waiting == 0, "who is only imagined is nowhere"
    scheduler.check()


def test_imagined_requests_do_not_lengthen_the_etas_of_other_lanes():
    policies = replace(PLAIN, order=Priority())
    scheduler = Scheduler(Settings(999, 4, (CHAT, BULK), policies, cost=COST))
    for lane in ("chat", "bulk"):
        for _ in range(ENOUGH):
            scheduler.estimates.promises.made(lane, 4, Promise(0, span=1, basis=LEARNED))
    assert scheduler.schedule(0).rows == ()
    lanes = scheduler.load(0).lanes
    assert [(each.eta, each.eta_prompt) for each in lanes.values()] == [(14 * MS, 4)] * 2
    for _ in range(ENOUGH):
        scheduler.estimates.promises.first_came("bulk", Promise(0, after=0, wait=10), 20)
    scheduler.schedule(0)
    lanes = scheduler.load(0).lanes
    assert [each.eta for each in lanes.values()] == [14 * MS, 28 * MS], "waits there were longer"


def test_the_eta_of_a_lane_comes_with_its_tokens_that_wait_in_time():
    scheduler = Scheduler(
        Settings(99, 4, (CHAT, BULK), replace(PLAIN, join=Continuous(1)), cost=COST)
    )
    for _ in range(ENOUGH):
        scheduler.estimates.promises.made("chat", 4, Promise(0, span=1, basis=LEARNED))
    tokens = {"runs": 4, "waits": 5, "late": 7}
    adds = [Add(other(id, prompt, 3, lane="chat")) for id, prompt in tokens.items()]
    scheduler.apply([*adds, Add(other("fills", 9, 3, lane="bulk"))], 0)
    scheduler.roster.relegate(scheduler.roster.by_id["late"])
    assert scheduler.schedule(0).rows
    assert scheduler.load(0).lanes["chat"].eta_tokens == 5


@pytest.fixture
def slow_looks(monkeypatch):
    """A look at the waiting requests takes four times as long, so that MANY / 4 are many."""
    monkeypatch.setattr("headway.core.planning.newcomers.LOOK", 4 * LOOK)


@pytest.mark.usefixtures("slow_looks")
def test_many_waiting_requests_are_each_promised_once_and_accurately():
    count = MANY // 4 + 50
    asked = [other(f"r{i}", 4, 2, arrived=MS * (i // 2)) for i in range(count)]
    rows, events = served(*asked, blocks=9_999)
    late = [rows[f"r{i}"] for i in range(count - 12, count)]
    assert all(row.was_promised for row in rows.values())
    off = [row.ttft / (row.promised_first - row.arrived) for row in late]
    assert min(off) > 0.9 and max(off) < 1.1
    told = [event.id for event in events if event.promise]
    assert len(told) == len({*told}) == count


def test_with_short_steps_waiting_requests_are_looked_at_less_often():
    """Ten requests wait. A look at them may take a sixteenth of the time, so it is taken once in
    several steps; after a pause it is taken at once."""
    scheduler = Scheduler(Settings(9_999, 4, ONE, replace(PLAIN, join=Continuous(1)), cost=SHORT))

    def steps_to_promise(*names, now):
        scheduler.apply([Add(other(name, 4, 900, arrived=now)) for name in names], now)
        for count in range(1, 999):
            batch = scheduler.schedule(now)
            said = Output(tuple([(7,) if row.want is Want.LAST else () for row in batch.rows]))
            scheduler.commit(batch, said, now + 2_000)
            told = {event.id for event in scheduler.newcomers.take_events() if event.promise}
            if told.issuperset(names):
                return count
        return None

    assert steps_to_promise(*[f"r{i}" for i in range(10)], now=0) == 1
    assert LOOK * 10 // 4_000 < steps_to_promise("late", now=9_000) < LOOK * 10 // 1_000
    for _ in range(999):
        batch = scheduler.schedule(10_000)
        scheduler.commit(batch, Output(tuple([(7,) for row in batch.rows])), 12_000)
    assert steps_to_promise("later", now=13_000) == 1


@pytest.mark.usefixtures("slow_looks")
def test_a_sibling_is_promised_its_times_after_its_leader():
    """The leader has to wait for its own promise, because many wait."""
    asked = [other(f"r{i}", 4, 2) for i in range(2 * MANY // 4)]
    leader = other("a", 8, 3, arrived=MS)
    rows, events = served(*asked, leader, leader.sibling("b", 1), blocks=9_999)
    told = [event.id for event in events if event.promise]
    assert told.index("b") == told.index("a") + 1
    assert rows["b"].promised_first > rows["a"].promised_first


def test_promises_give_prompts_the_time_of_deferrable_decodes():
    policies = replace(PLAIN, chunk=Fixed(4), order=ByDeadline(), defer=WithoutDeadline())
    asked = other("fills", 4, 20, lane="bulk"), other("soon", 8, 1, arrived=20 * MS, lane="chat")
    rows, _ = served(*asked, policies=policies, lanes=(CHAT, BULK))
    assert abs(rows["soon"].first_error) <= 2 * MS, "it may have a token in what is left of a step"


def test_promises_count_no_deferred_decodes_in_steps_full_of_prompts():
    policies = replace(PLAIN, order=ByDeadline(), defer=WithoutDeadline(), step_tokens=4)
    fills = other("fills", 4, 20, lane="bulk"), other("fills too", 4, 20, lane="bulk")
    soon = other("soon", 8, 1, arrived=40 * MS, lane="chat")
    rows, _ = served(*fills, soon, policies=policies, lanes=(CHAT, BULK))
    assert rows["soon"].first_error == 0


def test_without_a_cost_model_nothing_is_promised():
    rows, events = served(other("a", 4, 3), cost=StepCost())
    assert (rows["a"].promised_first, rows["a"].promised_end) == (NEVER, NEVER)
    assert not rows["a"].was_promised and not any(event.promise for event in events)


def test_a_request_that_leaves_before_its_first_step_is_promised_nothing():
    gone = other("gone", 4, 3)
    rows, events = served(gone, other("a", 4, 1), others=[(0, Cancel("gone"))])
    assert rows["gone"].finish is Finish.CANCELLED and rows["gone"].promised_end == NEVER
    assert [event.id for event in events if event.promise] == ["a"]
    static = replace(PLAIN, join=Static(2))
    rows, _ = served(gone, other("a", 4, 1), policies=static, others=[(MS, Cancel("gone"))])
    assert rows["a"].was_promised


def test_a_request_that_is_cut_short_is_no_kept_promise():
    rows, _ = served(other("a", 4, 9), others=[(20 * MS, Cancel("a"))])
    row = rows["a"]
    assert row.promised_end != NEVER and not row.was_promised and not row.kept_promise
    assert replace(row, finish=Finish.LENGTH).kept_promise
    assert not replace(row, finish=Finish.LENGTH, finished=NEVER).kept_promise
    assert replace(row, first_token=NEVER).first_error == NEVER
