"""A step is decided while another is computed (a depth of 2)."""

from dataclasses import replace

import pytest

from headway.core.batch import UNKNOWN, Want
from headway.core.commands import Add, Cancel, Stop
from headway.core.cost.estimates import DRAIN_DECAY
from headway.core.cost.step_cost import Rates, StepCost
from headway.core.grammar import Grammar
from headway.core.lane import REFUSE, RELEGATE, Budget, Lane, Share
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Static
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import JournalError, SettingError
from headway.executor.fake import FakeExecutor
from headway.journal.record import Record
from headway.sim.clock import VirtualClock
from headway.sim.engine import VirtualEngine
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from headway.sim.replay import replay as replay_records
from headway.strategies.registry import by_budgets
from tests.lane_rules import watched
from tests.traces import BLOCK, COST, DEFAULT, MS, Spy, answer, ask

STEP = StepCost.of(8 * MS, per_token=0, per_pair=0)


def engine(*commands, depth=2, blocks=40, policies=DEFAULT, cost=STEP, known=False, lanes=()):
    """An engine over a spied fake executor. commands: with the time in milliseconds of each.
    known: the scheduler knows the cost model too."""
    settings = Settings(
        blocks,
        BLOCK,
        lanes or (Lane(),),
        policies,
        cost=cost if known else StepCost(),
        depth=depth,
    )
    spied = Spy(FakeExecutor(blocks, BLOCK, steps_in_flight=2), [])
    clock, timed = VirtualClock(), [(at * MS, command) for at, command in commands]
    priced = PricedExecutor(cost, clock, spied)
    made = VirtualEngine(Scheduler(settings), priced, TraceInbox(timed, clock), clock, priced)
    return made, spied, clock


def finish(made):
    events = []
    while not made.scheduler.finished:
        events += made.step()
        made.scheduler.check()
    return events


def said(events, id):
    return [token for event in events if event.id == id for token in event.tokens]


def test_the_next_step_is_submitted_before_the_first_is_back():
    request = ask("a", 5, 4)
    made, spied, clock = engine((0, Add(request)))
    assert made.step() == [] and len(spied.batches) == 1 and clock.now() == 0
    (event,) = made.step()
    assert len(spied.batches) == 2 and clock.now() == 8 * MS
    assert spied.batches[1].rows[0].tokens == (UNKNOWN,) and spied.batches[1].rows[0].start == 5
    assert list(event.tokens) == answer(request)[:1]
    assert said([event, *finish(made)], "a") == answer(request)
    assert len(spied.batches) == 4, "its last token is sampled by its fourth row"


@pytest.mark.parametrize("depth, took", [(1, 4 * 10), (2, 10 + 3 * 8)])
def test_the_host_works_while_the_device_does(depth, took):
    """Of a step's 10 ms the first 2 are the host's. Only the first step's overlap with nothing."""
    cost = StepCost(device=Rates(step=8 * MS * 1000), host=Rates(step=2 * MS * 1000))
    made, _, clock = engine((0, Add(ask("a", 5, 4))), depth=depth, cost=cost)
    finish(made)
    assert clock.now() == took * MS
    rows = made.scheduler.ledger.steps
    assert sum(row.nanoseconds for row in rows) == clock.now(), "steps do not overlap"


def test_no_score_of_a_prompt_is_asked_for_twice():
    """The prompt's last token has no score, and those before it are still in flight."""
    request = ask("a", 5, 2, sampling=Sampling(prompt_logprobs=0))
    chunks = Policies(Continuous(4), chunk=Fixed(4))
    made, spied, _ = engine((0, Add(request)), policies=chunks)
    made.step()
    made.step()
    assert [batch.rows[0].want for batch in spied.batches] == [Want.PROMPT, Want.LAST]
    events = finish(made)
    assert said(events, "a") == answer(request)


HOSTED = StepCost(Rates(step=6 * MS * 1000, token=MS * 1000), host=Rates(step=2 * MS * 1000))


def test_a_step_behind_another_is_predicted_without_the_hosts_part():
    made, _, _ = engine((0, Add(ask("a", 5, 60))), cost=HOSTED, known=True)
    finish(made)
    spent = [row.nanoseconds for row in made.scheduler.ledger.steps]
    assert spent[:2] == [13 * MS, 7 * MS] and made.scheduler.estimates.drift == 1_000


def test_a_token_computed_past_a_stop_token_is_waste():
    request = ask("a", 5, 9)
    stop = answer(request)[2]
    request = ask("a", 5, 9, sampling=Sampling(stop_tokens=frozenset({stop})))
    made, _, _ = engine((0, Add(request)))
    events = finish(made)
    assert said(events, "a") == answer(request) and events[-1].finish is Finish.STOP
    rows = made.scheduler.ledger.steps
    assert len(rows) == len(answer(request)) + 1, "one step more, because nobody knew"
    assert [row.waste_nanoseconds for row in rows] == [0] * (len(rows) - 1) + [8 * MS]


@pytest.mark.parametrize(
    "end, kept, why", [(Cancel("a"), 2, Finish.CANCELLED), (Stop("a", 1), 1, Finish.STOP)]
)
def test_a_cancel_or_stop_takes_effect_at_the_next_decision(end, kept, why):
    """The command comes at 10 ms: the second step is in flight, and a third is decided at 16."""
    request = ask("a", 5, 9)
    made, spied, _ = engine((0, Add(request)), (10, end))
    events = finish(made)
    assert len(spied.batches) == 3 and said(events, "a") == answer(request)[:2]
    (row,) = made.scheduler.ledger.requests
    assert (row.finish, row.generated) == (why, kept) and row.finished == 16 * MS
    assert made.scheduler.pool.num_free == 40


def test_a_request_waits_for_blocks_of_a_sequence_that_ends_in_flight():
    """At 16 ms `a` has ended, but a step still uses two of the five blocks, and `b` needs four."""
    other = ask("b", tuple(range(20, 33)), 2)
    made, _, _ = engine((0, Add(ask("a", 5, 9))), (10, Cancel("a")), (10, Add(other)), blocks=5)
    with watched():
        events = finish(made)
    assert said(events, "b") == answer(other)
    assert made.scheduler.ledger.requests[1].first_scheduled == 24 * MS


@pytest.mark.parametrize("depth", [1, 2])
def test_a_slot_is_free_for_the_step_after_a_last_row(depth):
    """Two slots, a long answer, and four answers of one token each. That a token is the last one is
    known before it is sampled."""
    short = [ask(f"b{i}", (20 + i, 7), 1) for i in range(4)]
    adds = [(0, Add(each)) for each in (ask("a", 5, 6), *short)]
    made, spied, _ = engine(*adds, depth=depth, policies=Policies(Continuous(2)))
    events = finish(made)
    assert [len(batch.rows) for batch in spied.batches] == [2, 2, 2, 2, 1, 1]
    assert all(said(events, each.id) == answer(each) for each in short)


MIXED = StepCost(device=Rates(step=7 * MS * 1000), host=Rates(step=MS * 1000))


@pytest.mark.parametrize(
    "ttft, cost, submitted",
    [(150, STEP, 1), (170, STEP, 2), (150, MIXED, 2), (10**6, STEP, 2)],
    ids=["felt", "short", "costs the device much", "no hurry"],
)
def test_no_step_is_decided_behind_one_that_takes_a_good_part_of_a_ttft(ttft, cost, submitted):
    """So a request that arrives meanwhile can join the very next step."""
    lanes = Lane("calm"), Lane("default", budget=Budget(ttft=ttft * MS))
    made, spied, _ = engine((0, Add(ask("a", 5, 4))), cost=cost, known=True, lanes=lanes)
    events = made.step() + made.step()
    assert len(spied.batches) == submitted
    assert said(events + finish(made), "a") == answer(ask("a", 5, 4))


def test_a_request_whose_first_token_is_in_flight_is_not_late():
    """The token comes at 8 ms and is due at 9. Another step would end at 15."""
    lane = Lane("default", budget=Budget(ttft=9 * MS, tpot=20 * MS))
    first = ask("a", 5, 4), ask("b", 6, 1)
    adds = [(0, Add(each)) for each in first]
    made, spied, _ = engine(*adds, cost=MIXED, known=True, lanes=(lane,), policies=by_budgets(2))
    made.step()
    a, b = made.scheduler.roster.running.values()
    assert a.first_token == b.first_token == NEVER and a.first_seen == b.first_seen == 8 * MS
    assert a.next_by == 8 * MS + 20 * MS
    made.step()
    assert len(spied.batches) == 2, "decided while the first is in flight"
    finish(made)
    assert not any(row.relegated for row in made.scheduler.ledger.requests)


@pytest.mark.parametrize("late", [RELEGATE, REFUSE])
@pytest.mark.parametrize("budget", [Budget(ttft=28 * MS), Budget(e2e=28 * MS)], ids=["ttft", "e2e"])
def test_a_sibling_is_not_late_while_the_prompt_that_it_shares_is_in_flight(budget, late):
    """The prompt takes 15 ms, and its last token 11. Computed twice it would take 30."""
    lane, first = Lane("default", budget=budget, late=late), ask("a", 5, 1)
    adds = [(0, Add(each)) for each in (first, first.sibling("b", 1))]
    made, _, _ = engine(*adds, lanes=(lane,), cost=COST, known=True, policies=by_budgets(2))
    made.step()
    assert made.scheduler.apply([], MS) == [], "while their prompt is computed"
    finish(made)
    rows = {row.id: (row.relegated, row.good) for row in made.scheduler.ledger.requests}
    assert rows == {"a": (False, True), "b": (False, True)}


def test_a_row_whose_sampling_reads_the_last_token_waits_for_it():
    penalised = ask("a", 5, 4, sampling=Sampling(presence_penalty=0.5))
    made, spied, clock = engine((0, Add(penalised)))
    finish(made)
    assert all(UNKNOWN not in row.tokens for batch in spied.batches for row in batch.rows)
    assert clock.now() == 32 * MS, "no step is lost"
    assert Sampling(grammar=Grammar("regex", "a")).reads_tokens


def test_no_step_is_decided_ahead_for_a_group_or_if_blocks_are_short():
    adds = [(0, Add(ask(id, 5, 4))) for id in "ab"]
    made, spied, _ = engine(*adds, policies=Policies(Static(2)))
    finish(made)
    assert all(UNKNOWN not in row.tokens for batch in spied.batches for row in batch.rows)
    made, spied, _ = engine(*adds, blocks=5)  # two each, and both want a third
    made.step()
    assert len(spied.batches) == 1 and made.scheduler.pool.num_free == 1
    events = made.step()
    assert len(spied.batches) == 1, "somebody may have to be preempted"
    events += finish(made)
    assert [said(events, id) for id in "ab"] == [answer(ask(id, 5, 4)) for id in "ab"]


def test_no_step_is_decided_ahead_if_a_lane_lacks_blocks_that_its_rows_need():
    """Three answers begin with two blocks each, and the lane may have seven. At the ninth token all
    want a third: some give way in the same steps as at a depth of 1, which has none in flight."""
    ends, asked = [], [ask(id, 5, 14) for id in "abc"]
    for depth in (1, 2):
        adds, lanes = [(0, Add(each)) for each in asked], (Lane(blocks=Share(most=7)),)
        made, spied, clock = engine(*adds, depth=depth, lanes=lanes)
        events = finish(made)
        assert [said(events, each.id) for each in asked] == [answer(each) for each in asked]
        ends.append((len(spied.batches), clock.now(), made.scheduler.roster.preemptions))
    assert ends[0] == ends[1]
    ahead = [batch.step for batch in spied.batches if UNKNOWN in batch.rows[0].tokens]
    assert ahead[:3] == [2, 3, 4], "while the blocks suffice"


def tiers(least=0):
    """Offline work has all slots, and a request with a budget comes."""
    lanes = (Lane("offline", slots=Share(least)), Lane("chat", Budget(ttft=500 * MS)))
    adds = [(0, Add(ask(f"o{i}", 5, 9, lane="offline"))) for i in range(2)]
    late = (20, Add(ask("c", 5, 3, 20 * MS, lane="chat")))
    return engine(*adds, late, lanes=lanes, policies=by_budgets(2), known=True, cost=COST)


def test_a_request_that_may_take_a_slot_finds_a_sequence_not_in_flight():
    made, _, _ = tiers()
    finish(made)
    rows = {row.id: row for row in made.scheduler.ledger.requests}
    assert rows["o1"].preemptions == 1 and rows["o0"].preemptions == 0
    assert rows["c"].finished < rows["o0"].finished


def test_steps_are_decided_ahead_while_a_request_waits_that_may_take_no_slot():
    made, spied, _ = tiers(least=2)
    finish(made)
    rows = {row.id: row for row in made.scheduler.ledger.requests}
    assert rows["o1"].preemptions == 0 and rows["c"].first_token > rows["o0"].finished
    assert all(len(batch.rows) <= 2 for batch in spied.batches)
    ahead = [batch.step for batch in spied.batches if UNKNOWN in batch.rows[0].tokens]
    assert len(ahead) > 6


def test_policies_see_the_time_when_their_step_will_begin():
    made, _, clock = engine((0, Add(ask("a", 5, 4))), known=True)
    made.step()
    assert clock.now() == 0 and made.scheduler.view(0).now == 8 * MS


def test_the_begin_of_a_step_is_predicted_from_when_the_one_in_flight_was_decided():
    made, _, clock = engine((20, Add(ask("a", 5, 4))), known=True)
    made.step()
    made.step()
    assert clock.now() == 20 * MS and made.scheduler.view(20 * MS).now == 28 * MS


def test_the_begin_of_a_step_is_predicted_without_overlapped_host_time():
    """The first takes 13 ms; the second takes 7, and alone it would take 9."""
    made, _, clock = engine((0, Add(ask("a", 5, 60))), cost=HOSTED, known=True)
    made.step()
    made.step()
    assert clock.now() == 13 * MS and made.scheduler.view(13 * MS).now == 20 * MS


def test_time_of_overlapping_steps_counts_once_in_the_drain_rate():
    adds = [(0, Add(ask(id, 5, 4))) for id in "ab"]
    made, _, clock = engine(*adds, policies=Policies(Continuous(1)))
    while not made.scheduler.ledger.requests:
        made.step()
    drain = made.scheduler.estimates._drains["default"]
    assert clock.now() == 32 * MS, "b has begun already, so a part of the first 24 has faded"
    assert drain.nanoseconds == 32 * MS - 24 * MS // DRAIN_DECAY


def test_a_journal_says_which_step_was_decided_and_which_came_back():
    made, _, _ = engine((0, Add(ask("a", 5, 3))))
    records: list[Record] = []
    made.keep = records.append
    finish(made)
    steps = [(record.step, record.collected) for record in records]
    assert steps == [(1, 0), (2, 1), (3, 2), (0, 3)]
    again, _ = replay_records(made.scheduler.settings, records)
    assert again.ledger.requests == made.scheduler.ledger.requests
    second = records[1]
    for wrong, words in (
        (replace(second, collected=2), "step 1 is back where step 2 is written"),
        (replace(second, step=0), "step 2 is decided where none is written"),
        (replace(second, tokens=((4,), (5,))), "step 1 has 1 rows where 2 are written"),
    ):
        with pytest.raises(JournalError, match=words):
            replay_records(made.scheduler.settings, [records[0], wrong, *records[2:]])
    more = replace(records[-1], step=4)
    with pytest.raises(JournalError, match="nothing is decided where step 4 is written"):
        replay_records(made.scheduler.settings, [*records[:-1], more])


def test_a_depth_of_zero_or_beyond_the_executors_is_refused():
    with pytest.raises(SettingError, match="a depth of 0 steps computes nothing"):
        Settings(8, depth=0)
    settings = Settings(8, BLOCK, policies=Policies(Continuous(2)), depth=2)
    with pytest.raises(SettingError, match="the fake executor takes 1 steps at once, not 2"):
        FakeExecutor(8, BLOCK).traits.check(settings)
