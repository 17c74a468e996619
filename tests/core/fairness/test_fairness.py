"""Tenants of a lane get their shares: virtual token counters, and the bound that they keep."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.batch import Output, Want
from headway.core.commands import Add, Cancel, Stop
from headway.core.cost.step_cost import StepCost
from headway.core.fairness.fair_line import FairLine
from headway.core.fairness.token_counters import ANSWER, PROMPT
from headway.core.lane import Budget, Lane
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.chunk import Fixed
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous, Dynamic
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.policies.relegate import Hopeless
from headway.core.request import NEVER
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError
from tests.traces import BLOCK, MS, ask

COST = StepCost.of(10 * MS, per_token=MS)
LANE = Lane("chat", Budget(ttft=10_000 * MS, tpot=1_000 * MS))
PLENTY = 10_000  # blocks


def scheduler_of(order, slots=1, lanes=(LANE,), blocks=PLENTY, **parts):
    policies = Policies(Continuous(slots), order, **parts)
    return Scheduler(Settings(blocks, BLOCK, lanes, policies, cost=COST))


def add(scheduler, *ids, prompt=2, most=2, now=0, lane="chat", **rest):
    """Requests; the first letter of an id is the tenant. Each has a prompt of its own."""
    for id in ids:
        tokens = tuple(100 + ord(letter) for letter in id) * prompt
        request = ask(id, tokens[:prompt], most, now, lane=lane, tenant=id[0], **rest)
        scheduler.apply([Add(request)], now)


def step(scheduler, now=0):
    """Run one step; each row that wants a token gets one. Returns the ids of its rows."""
    names = {s.number: s.request.id for s in scheduler.roster.by_id.values()}
    scheduler.apply((), now)
    batch = scheduler.schedule(now)
    scheduler.check()
    outputs = tuple((9,) if row.want is Want.LAST else () for row in batch.rows)
    scheduler.commit(batch, Output(outputs), now)
    scheduler.check()
    return [names[row.sequence] for row in batch.rows]


def started(scheduler):
    """The ids of all requests, in the order in which they started."""
    order = list[str]()
    while scheduler.roster.by_id:
        order += [id for id in step(scheduler) if id not in order]
    return order


def counter(scheduler, tenant, lane="chat"):
    """The tenant's counter, in tokens of weight 1."""
    line = scheduler.roster.lines[lane]
    assert isinstance(line, FairLine)
    line.count()
    return line.counters.of(tenant) / line.counters.unit


# -- the next tenant


def test_tenants_take_turns_and_each_tenants_requests_keep_their_order():
    scheduler = scheduler_of(Fairly())
    add(scheduler, "a1", "a2", "a3", "b1", "b2", "c1")
    assert started(scheduler) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_first_come_alone_serves_all_requests_of_one_tenant_first():
    scheduler = scheduler_of(FirstCome())
    add(scheduler, "a1", "a2", "a3", "b1")
    assert started(scheduler) == ["a1", "a2", "a3", "b1"]


def test_of_tenants_with_equal_counters_the_one_with_the_oldest_request_goes_first():
    scheduler = scheduler_of(Fairly(), slots=4)
    add(scheduler, "z1", "b1", "a1", "a2", "z2")
    step(scheduler)
    assert [s.request.id for s in scheduler.roster.running.values()] == ["z1", "b1", "a1", "z2"]


def test_a_weight_of_two_gets_two_turns():
    scheduler = scheduler_of(Fairly(weights={"b": 2}))
    add(scheduler, *(f"a{i}" for i in range(4)), *(f"b{i}" for i in range(4)))
    assert started(scheduler) == ["a0", "b0", "b1", "a1", "b2", "b3", "a2", "a3"]


def test_turns_count_answer_tokens_and_not_only_requests():
    scheduler = scheduler_of(Fairly())
    add(scheduler, "a1", "a2", most=20)
    add(scheduler, "b1", "b2", "b3", "b4", "b5", "b6", most=4)
    first = started(scheduler)
    assert first == ["a1", "b1", "b2", "b3", "b4", "b5", "a2", "b6"], "42 to 10 each, then 50"


def test_lanes_keep_their_order_and_each_has_counters_of_its_own():
    chat, bulk = replace(LANE, priority=0), replace(LANE, name="bulk", priority=1)
    scheduler = scheduler_of(Fairly(Priority()), lanes=(bulk, chat))
    add(scheduler, "a1", "a2", "b1", lane="bulk")
    add(scheduler, "b2", "b3")
    assert started(scheduler) == ["b2", "b3", "a1", "b1", "a2"]


def test_the_wrapped_order_ranks_the_requests_of_one_tenant():
    scheduler = scheduler_of(Fairly(ShortestFirst()))
    add(scheduler, "a1", most=9)
    add(scheduler, "b1", most=5)
    add(scheduler, "a2", "b2")
    assert started(scheduler) == ["a2", "b2", "a1", "b1"]


def test_the_earliest_deadlines_are_shared_fairly_before_later_ones():
    later = replace(LANE, name="bulk", budget=Budget(ttft=20_000 * MS))
    scheduler = scheduler_of(Fairly(ByDeadline()), lanes=(later, LANE))
    add(scheduler, "a1", "b1", lane="bulk")
    add(scheduler, "a2", "a3", "b2")
    assert started(scheduler) == ["a2", "b2", "a3", "a1", "b1"]


def test_an_order_may_name_a_request_twice():
    """By deadline, the oldest comes first for its age, and again by its deadline."""
    order = Fairly(ByDeadline(patience=0, turn=1))
    scheduler = scheduler_of(order, slots=4)
    add(scheduler, "a1", "a2", "b1", "b2")
    step(scheduler)
    assert [s.request.id for s in scheduler.roster.running.values()] == ["a1", "b1", "a2", "b2"]


def test_a_running_prompt_goes_before_waiting_requests_of_other_tenants():
    scheduler = scheduler_of(Fairly(), slots=2, chunk=Fixed(4))
    add(scheduler, "a1", prompt=12)
    step(scheduler)
    add(scheduler, "a2", "b1")
    assert step(scheduler) == ["a1"]


def test_a_cached_prompt_counts_in_a_step_with_its_uncached_tokens_only():
    scheduler, shared = scheduler_of(Fairly(), slots=5), (7,) * 2 * BLOCK
    asked = [ask(f"a{i}", (*shared, i), 1, lane="chat", tenant="a") for i in range(4)]
    scheduler.apply([Add(asked[0])], 0)
    step(scheduler)
    scheduler.apply(map(Add, asked[1:]), 0)
    add(scheduler, "b1", "b2", prompt=9)
    assert step(scheduler) == ["a1", "b1", "a2", "a3", "b2"]


def test_a_free_slot_is_given_by_counters_that_include_running_answers():
    scheduler = scheduler_of(Fairly(), slots=2)
    add(scheduler, "a1", prompt=6, most=30)
    add(scheduler, "b1", "a2", "b2", most=5)
    while "b1" in scheduler.roster.by_id:
        step(scheduler)
    assert step(scheduler) == ["a1", "b2"], "16 to 12; of its prompt alone a has had 6"


def test_relegated_requests_are_shared_fairly_among_tenants_too():
    lane = replace(LANE, budget=Budget(ttft=1_000 * MS))
    scheduler = scheduler_of(Fairly(ByDeadline()), lanes=(lane,), relegate=Hopeless())
    add(scheduler, "a1", "a2", "b1", "b2")
    scheduler.apply((), 2_000 * MS)
    add(scheduler, "c1", now=2_000 * MS)
    order = list[str]()
    while scheduler.roster.by_id:
        order += [id for id in step(scheduler, 2_000 * MS) if id not in order]
    assert order == ["c1", "a1", "b1", "a2", "b2"]


def test_a_group_takes_requests_past_their_window_first_and_in_fair_order():
    policies = Policies(Dynamic(3, 10), Fairly())
    scheduler = Scheduler(Settings(PLENTY, BLOCK, (LANE,), policies))
    add(scheduler, "a1", "a2", "b1")
    add(scheduler, "c1", now=9)
    step(scheduler, 10)
    assert [s.request.id for s in scheduler.roster.running.values()] == ["a1", "b1", "a2"]


def test_a_request_that_does_not_fit_is_overtaken_by_other_tenants():
    scheduler = scheduler_of(Fairly(), slots=4, blocks=5)
    add(scheduler, "b1", prompt=8, most=8)
    step(scheduler)
    add(scheduler, "a1", prompt=12, most=4)
    add(scheduler, "b2")
    assert "a1" not in step(scheduler)
    assert [s.request.id for s in scheduler.roster.running.values()] == ["b1", "b2"]


# -- what counts


def test_prompts_count_when_they_join_and_answers_as_they_come():
    scheduler = scheduler_of(Fairly())
    add(scheduler, "a1", prompt=8, most=3)
    assert counter(scheduler, "a") == 0
    step(scheduler)
    assert counter(scheduler, "a") == 8 * PROMPT + 1 * ANSWER
    step(scheduler)
    assert counter(scheduler, "a") == 8 * PROMPT + 2 * ANSWER


def test_prompt_tokens_found_in_the_cache_are_free():
    scheduler = scheduler_of(Fairly())
    for tenant in "ab":
        request = ask(tenant, (7,) * (2 * BLOCK + 1), 1, lane="chat", tenant=tenant)
        scheduler.apply([Add(request)], 0)
        step(scheduler)
    assert counter(scheduler, "a") == 2 * BLOCK + 1 + ANSWER
    assert counter(scheduler, "b") - counter(scheduler, "a") == 1 + ANSWER, "after it was lifted"


def test_tokens_recomputed_after_a_preemption_are_free():
    scheduler = scheduler_of(Fairly(), slots=2, blocks=5)
    add(scheduler, "a1", prompt=8, most=9)
    add(scheduler, "b1", prompt=4, most=9)
    while scheduler.roster.by_id:
        step(scheduler)
    rows = {row.id: row for row in scheduler.ledger.requests}
    assert rows["b1"].recomputed
    assert counter(scheduler, "a") == 8 + 9 * ANSWER
    assert counter(scheduler, "b") == 4 + 9 * ANSWER


@pytest.mark.parametrize("seen_before", [False, True])
def test_discarded_tokens_stay_counted(seen_before):
    scheduler = scheduler_of(Fairly())
    add(scheduler, "a1", most=9)
    for _ in range(4):
        step(scheduler)
    if seen_before:
        assert counter(scheduler, "a") == 2 + 4 * ANSWER
    scheduler.apply([Stop("a1", 1)], 0)
    assert counter(scheduler, "a") == 2 + 4 * ANSWER


def test_counters_are_exact_for_weights_that_have_no_common_divisor():
    scheduler = scheduler_of(Fairly(weights={"a": 3, "b": 7}), slots=2)
    add(scheduler, "a1", "b1", prompt=1, most=3)
    while scheduler.roster.by_id:
        step(scheduler)
    assert counter(scheduler, "a") == 7 / 3 and counter(scheduler, "b") == 7 / 7


# -- tenants that come back


def test_an_idle_tenants_counter_is_lifted_to_the_least_of_the_waiting_ones():
    scheduler = scheduler_of(Fairly(), slots=2)
    add(scheduler, "a1", "a2", prompt=5, most=30)
    add(scheduler, "b1", "b2", prompt=9, most=30)
    step(scheduler)
    add(scheduler, "c1")
    assert (counter(scheduler, "a"), counter(scheduler, "b")) == (7, 11)
    assert counter(scheduler, "c") == 7
    add(scheduler, "a3", "c2")
    assert (counter(scheduler, "a"), counter(scheduler, "c")) == (7, 7), "they wait already"


def test_if_nobody_waits_a_counter_is_lifted_to_that_of_the_last_to_wait():
    scheduler = scheduler_of(Fairly(), slots=2)
    add(scheduler, "a1", prompt=5, most=30)
    step(scheduler)
    add(scheduler, "b1")
    assert counter(scheduler, "b") == 7
    scheduler.apply([Cancel("b1")], 0)
    add(scheduler, "b2")
    assert counter(scheduler, "b") == 7


def test_no_counter_is_lifted_to_that_of_a_relegated_request_that_left():
    scheduler = scheduler_of(Fairly())
    add(scheduler, "a1", most=4)
    step(scheduler)
    add(scheduler, "b1", "a2", most=9)
    scheduler.roster.relegate(scheduler.roster.by_id["b1"])
    while "a1" in scheduler.roster.by_id:
        step(scheduler)
    step(scheduler)
    scheduler.apply([Cancel("b1")], 0)
    add(scheduler, "c1")
    assert counter(scheduler, "c") == counter(scheduler, "a") > counter(scheduler, "b")


def test_the_counter_of_a_returning_tenant_is_never_lowered():
    scheduler = scheduler_of(Fairly())
    add(scheduler, "a1", prompt=30)
    step(scheduler)
    add(scheduler, "b1")
    high = counter(scheduler, "a")
    add(scheduler, "a2")
    assert counter(scheduler, "a") == high


# -- the bound


def service(scheduler, requests):
    """Weighed prompt tokens computed and answer tokens generated, by tenant. They are taken from
    the ledger and the sequences, not from the counters."""
    found = Counter[str]()
    for row in scheduler.ledger.requests:
        if row.first_scheduled != NEVER:
            found[requests[row.id].tenant] += row.prompt - row.cached + ANSWER * row.generated
    for sequence in scheduler.roster.by_id.values():
        if sequence.is_started:
            prompt = len(sequence.request.prompt) - sequence.cached
            found[sequence.request.tenant] += PROMPT * prompt + ANSWER * sequence.generated
    return found


def widest_gap(scheduler, timed, weights):
    """Run the scheduler to its end. The widest gap in service between two tenants while both wait,
    in units of its bound."""
    requests = {request.id: request for _, request in timed}
    left, now, most = list(timed), 0, 0
    began: dict[tuple[str, str], list[float]] = {}  # least and most difference, by pair
    widest = dict[tuple[str, str], float]()
    while left or scheduler.roster.by_id:
        due = [Add(request) for at, request in left if at <= now]
        left = [each for each in left if each[0] > now]
        scheduler.apply(due, now)
        batch = scheduler.schedule(now)
        waiting = {
            s.request.tenant for line in scheduler.roster.lines.values() for s in line.waiting
        }
        held = sum([s.limit for s in scheduler.roster.running.values()])
        outputs = tuple((9,) if row.want is Want.LAST else () for row in batch.rows)
        now += 1
        if batch.rows:
            scheduler.commit(batch, Output(outputs), now)
        most, had = max(most, held), service(scheduler, requests)
        for pair in [(a, b) for a in "abc" for b in "abc" if a < b]:
            if waiting.issuperset(pair):
                gap = had[pair[0]] / weights[pair[0]] - had[pair[1]] / weights[pair[1]]
                low, high = began.get(pair, (gap, gap))
                began[pair] = [min(low, gap), max(high, gap)]
                widest[pair] = max(widest.get(pair, 0), began[pair][1] - began[pair][0])
            else:
                began.pop(pair, None)
    longest = max(len(request.prompt) for request in requests.values())
    bound = 2 * max(PROMPT * longest, ANSWER * most)
    return max(
        [gap * min(weights[a], weights[b]) / bound for (a, b), gap in widest.items()], default=0
    )


@st.composite
def crowds(draw):
    """Requests of three tenants for one lane, most of them there at the beginning."""
    made = []
    for i in range(draw(st.integers(4, 24))):
        shared = draw(st.sampled_from([(), (), (1,) * 8]))
        request = ask(
            f"r{i}",
            shared + (50 + i,) * draw(st.integers(1, 20)),
            draw(st.integers(0, 20)),
            at := draw(st.sampled_from([0, 0, 0, 5, 30])),
            lane="chat",
            tenant=draw(st.sampled_from("aabc")),
        )
        made.append((at, request))
    return made


ORDERS = [FirstCome(), Priority(), ShortestFirst(), ByDeadline(), ByDeadline(patience=3, turn=2)]


@settings(deadline=None)
@given(
    crowds(),
    st.sampled_from(ORDERS),
    st.sampled_from([Continuous(1), Continuous(4), Dynamic(3, 4)]),
    st.sampled_from([{}, {"chunk": Fixed(5)}]),
    st.fixed_dictionaries({tenant: st.sampled_from([1, 1, 2, 5]) for tenant in "abc"}),
)
def test_the_service_gap_of_two_tenants_that_both_wait_stays_within_the_bound(
    timed, order, join, parts, weights
):
    policies = Policies(join, Fairly(order, weights), step_tokens=64, **parts)
    scheduler = Scheduler(Settings(PLENTY, BLOCK, (LANE,), policies, cost=COST))
    gap = widest_gap(scheduler, timed, weights)
    event(f"gap {gap:.1f} of the bound")
    assert gap <= 1


def test_first_come_alone_exceeds_the_bound():
    timed = [
        (0, ask(f"r{i}", (i,) * 4, 4, lane="chat", tenant="a" if i < 40 else "b"))
        for i in range(80)
    ]
    equal = dict.fromkeys("abc", 1)
    assert widest_gap(scheduler_of(FirstCome()), timed, equal) > 5
    assert widest_gap(scheduler_of(Fairly()), timed, equal) <= 1


# -- cost, and what is refused


def test_a_lane_with_one_tenant_is_ranked_by_the_wrapped_order_itself():
    scheduler = scheduler_of(Fairly())
    add(scheduler, "a1", "a2")
    ranked = scheduler.settings.policies.order.rank(scheduler.view(0), ())
    assert type(ranked) is type(FirstCome().rank(scheduler.view(0), ()))


def test_nested_fairly_zero_weights_and_missing_costs_are_refused_by_name():
    with pytest.raises(SettingError, match="once, not twice"):
        Fairly(Fairly())
    with pytest.raises(SettingError, match="the weight of tenant 'b' is 0: it must be from 1"):
        Fairly(weights={"a": 1, "b": 0})
    with pytest.raises(SettingError, match="ByDeadline predicts times"):
        Settings(8, policies=Policies(order=Fairly(ByDeadline())))


def test_the_ranks_of_lanes_are_those_of_the_wrapped_order():
    lanes = (replace(LANE, priority=1), replace(LANE, name="bulk", priority=0))
    made = Settings(8, BLOCK, lanes, Policies(order=Fairly(Priority())))
    assert made.ranks == Settings(8, BLOCK, lanes, Policies(order=Priority())).ranks
