"""The policies that go by budgets, each by its one question."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headway.core.cost.estimates import Estimates
from headway.core.cost.features import row_features
from headway.core.cost.lengths import ENOUGH, KEPT
from headway.core.cost.promise import Promise
from headway.core.cost.step_cost import Rates, StepCost
from headway.core.fairness.turns import Turns
from headway.core.kv.blocks import BlockPool
from headway.core.lane import TAKE, Budget, Lane, Line, Share
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed
from headway.core.policies.defer import Nobody, WithoutDeadline, WithTimeToSpare
from headway.core.policies.join import Dynamic, LengthClasses, Static
from headway.core.policies.mix import Alternate, PrefillFirst
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.policies.relegate import Hopeless, Keep
from headway.core.request import NEVER, Request
from headway.core.sequences.sequence import RELEGATED, TIMED, UNTIMED, Sequence
from headway.core.settings import Settings
from headway.core.view import View
from headway.errors import SettingError
from tests.traces import BLOCK, MS

COST = StepCost.of(10 * MS, per_token=MS)
BY_SLACK = BySlack()
CHAT, VOICE, BULK = Lane("chat", Budget(ttft=9)), Lane("voice", Budget(ttft=5)), Lane("bulk")


def one(number, lane="chat", tier=TIMED, arrived=0, prompt=4, most=5, **rest):
    request = Request(f"r{number}", (1,) * prompt, most, arrived, lane)
    made = Sequence(number, request, [1] * prompt)
    made.tier = tier
    for name, value in rest.items():
        setattr(made, name, value)
    made.first_seen = made.first_token
    return made


def decoding(number, generated=1, **rest):
    made = one(number, **rest)
    made.tokens += [0] * generated
    made.computed = made.scheduled = len(made.tokens) - 1
    made.begun = True
    return made


def line(lane, *waiting, running=0):
    made = Line(lane)
    for each in waiting:
        made.insert(each)
    made.running = running
    return made


def seen(*lines, now=0, running=(), since=0, step=1, cost=COST):
    known = {"estimates": Estimates(cost), "since_oldest": (since, since), "step": step}
    return View(now, lines, running, **known)


def numbers(found):
    return [each.number for each in found]


# -- the order of requests


def job(number, due, work, prompt=4):
    """A sequence whose first token is due at `due` and whose prompt takes `work` to compute."""
    made = one(number, first_by=due, prompt=prompt)
    made.priced_from, made.priced_to, made.work = made.scheduled, len(made.tokens), work
    return made


def late(jobs):
    """How many of these jobs, computed one after another, end after their deadlines."""
    end = count = 0
    for each in jobs:
        end += each.work
        count += end > each.first_by
    return count


def least_late(jobs):
    """The fewest late jobs, by trying all subsets: jobs that can all be in time are by deadline."""
    by_deadline = sorted(jobs, key=lambda each: each.first_by)
    for size in range(len(jobs) + 1):
        for left in combinations(by_deadline, len(jobs) - size):
            if not late(left):
                return size
    raise AssertionError


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=8))
def test_by_deadline_makes_as_few_jobs_late_as_any_order(pairs):
    jobs = [job(i, due, work) for i, (due, work) in enumerate(pairs)]
    ranked = list(ByDeadline().rank(seen(line(CHAT, *jobs)), ()))
    assert sorted(numbers(ranked)) == numbers(jobs)
    assert late(ranked) == least_late(jobs)
    event(f"{min(late(ranked), 3)} late")
    plain = ByDeadline(most_in_time=False).rank(seen(line(CHAT, *jobs)), ())
    assert numbers(plain) == numbers(sorted(jobs, key=lambda each: (each.first_by, each.number)))


def test_the_largest_work_is_put_behind_and_there_the_least_work_goes_first():
    jobs = [job(0, 10, 9), job(1, 11, 4), job(2, 12, 5), job(3, 13, 8)]
    assert numbers(ByDeadline().rank(seen(line(CHAT, *jobs)), ())) == [1, 2, 3, 0]
    ranked = ByDeadline(most_in_time=False).rank(seen(line(CHAT, *jobs)), ())
    assert numbers(ranked) == [0, 1, 2, 3]


@pytest.mark.parametrize("dues", [(10, 11), (1, 2)], ids=["one is late", "both are late"])
def test_of_jobs_of_equal_work_the_last_to_arrive_goes_behind(dues):
    jobs = [job(number, due, 6) for number, due in enumerate(dues)]
    assert numbers(ByDeadline().rank(seen(line(CHAT, *jobs)), ())) == [0, 1]


def test_a_prompt_of_one_token_counts_as_work():
    jobs = [job(0, 10, 9, prompt=1), job(1, 11, 4, prompt=1)]
    assert numbers(ByDeadline().rank(seen(line(CHAT, *jobs)), ())) == [1, 0]


def test_a_sequence_that_is_late_already_goes_behind_those_in_time():
    late = decoding(5, first_token=0, tpot=20 * MS)
    view = seen(line(CHAT, job(0, 900 * MS, 9)), now=21 * MS, running=[late])
    assert numbers(ByDeadline().rank(view, [late])) == [0, 5]
    assert numbers(ByDeadline().rank(view._replace(now=20 * MS), [late])) == [5, 0]


def test_work_takes_longer_beside_decodes():
    running = [decoding(i, first_by=0) for i in range(10, 60)]
    lines = line(CHAT, job(0, 10, 7), job(1, 11, 2))
    assert numbers(ByDeadline().rank(seen(lines), ())) == [0, 1]
    crowded = seen(lines, running=running)
    assert numbers(ByDeadline().rank(crowded, ())) == [1, 0], "half of a step is theirs"


@pytest.mark.parametrize("due, first", [(70, 0), (69, 1)])
def test_decodes_make_work_take_ten_times_as_long_at_most(due, first):
    running = [decoding(i, first_by=0) for i in range(10, 300)]
    view = seen(line(CHAT, job(0, due, 7), job(1, 100, 2)), running=running)
    assert numbers(ByDeadline().rank(view, ()))[0] == first


def test_an_e2e_deadline_leaves_time_to_generate_the_answer():
    soon = one(0, done_by=80 * MS, most=5)  # five steps of 11 ms are left
    first = one(1, first_by=26 * MS)
    ranked = ByDeadline(False).rank(seen(line(CHAT, soon, first)), ())
    assert numbers(ranked) == [0, 1]
    soon.done_by = 82 * MS
    assert numbers(ByDeadline(False).rank(seen(line(CHAT, soon, first)), ())) == [1, 0]


def test_an_e2e_deadline_leaves_time_for_an_answer_of_the_learned_length():
    batch = one(0, done_by=80 * MS, most=500, lane="chat")
    first = one(1, first_by=26 * MS)
    view = seen(line(CHAT, batch, first))
    assert numbers(ByDeadline(False).rank(view, ())) == [0, 1], "500 tokens are reckoned with"
    for _ in range(16):
        view.estimates.lengths.ended(decoding(9, generated=4))
    batch.expected_end = (0.0, 0, "")
    assert numbers(ByDeadline(False).rank(view, ())) == [1, 0], "four tokens"


def test_tiers_are_ranked_one_after_another_whatever_their_lanes():
    waits = [one(0, "bulk", UNTIMED), one(1, tier=RELEGATED), one(2, first_by=900 * MS)]
    runs = [one(3, "bulk", UNTIMED), one(4, tier=RELEGATED), one(5, first_by=500 * MS)]
    lines = line(BULK, waits[0]), line(CHAT, waits[1], waits[2])
    assert numbers(ByDeadline().rank(seen(*lines, running=runs), runs)) == [5, 2, 4, 1, 3, 0]


@pytest.mark.parametrize(
    "since, now, first", [(7, 100, 0), (6, 100, 9), (7, 99, 9), (30, 500, 0), (0, 500, 9)]
)
def test_the_oldest_request_put_behind_has_one_of_every_turn_joins(since, now, first):
    lines = line(CHAT, one(9, first_by=5)), line(BULK, one(0, "bulk", UNTIMED))
    order, runs = ByDeadline(patience=100, turn=8), [decoding(5, lane="bulk", tier=UNTIMED)]
    view = seen(*lines, since=since, now=now, running=runs)
    assert numbers(order.rank(view, ()))[0] == first
    alone = view._replace(running=[decoding(5)])
    assert numbers(order.rank(alone, ()))[0] == (0 if now >= 100 else 9), "none of them runs"
    late = alone._replace(lines=(line(CHAT, one(9, first_by=5), one(0, tier=RELEGATED)),))
    assert numbers(order.rank(late, ()))[0] == (0 if now >= 100 else 9), "nor a relegated one"


def test_relegated_and_untimed_requests_go_by_the_priority_of_their_lanes():
    late = [line(replace(CHAT, priority=1), one(0, tier=RELEGATED))]
    late.append(line(VOICE, one(1, "voice", tier=RELEGATED)))
    free = [line(replace(BULK, priority=1), one(2, "bulk", UNTIMED))]
    free.append(line(Lane("batch"), one(3, "batch", UNTIMED)))
    assert numbers(ByDeadline().rank(seen(*late, *free), ())) == [1, 0, 3, 2]


def test_untimed_requests_go_by_completion_time_and_arrival():
    dues = NEVER, 900, 50, 900
    waits = [one(i, "bulk", UNTIMED, done_by=due) for i, due in enumerate(dues)]
    assert numbers(ByDeadline().rank(seen(line(BULK, *waits)), ())) == [2, 1, 3, 0]


def test_running_and_relegated_sequences_age_too():
    order, old = ByDeadline(patience=100, turn=1), one(1, "bulk", UNTIMED)
    lines = line(CHAT, one(9, first_by=5)), line(BULK, one(3, "bulk", UNTIMED))
    assert numbers(order.rank(seen(*lines, now=100, running=[old]), [old]))[0] == 1
    lines = line(CHAT, one(9, first_by=5), one(0, tier=RELEGATED)), line(BULK)
    assert numbers(order.rank(seen(*lines, now=100, running=[old]), [old]))[0] == 0
    assert numbers(order.rank(seen(line(CHAT), line(BULK), now=100), ())) == []


def test_a_timed_request_that_is_always_put_behind_has_its_turn_too():
    order = ByDeadline(patience=100, turn=4)
    large, small = job(0, 10, 9_000), job(1, 2_000, 9)
    for since, first in ((3, 0), (2, 1)):
        view = seen(line(CHAT, large, small), line(BULK), now=100, since=since)
        assert numbers(order.rank(view, ()))[0] == first
    view = seen(line(CHAT, small), now=100, step=4, running=[large])
    assert numbers(order.rank(view, [large]))[0] == 0


def test_a_request_that_waits_for_a_slot_of_its_lane_takes_no_turn():
    order, other = ByDeadline(patience=100, turn=4), replace(VOICE, slots=Share(0, 1))
    full = line(other, one(0, "voice", first_by=5), running=1)
    lines = line(CHAT, one(1, tier=RELEGATED), one(2, first_by=9_000 * MS)), full
    view = seen(*lines, now=100, since=3, running=[decoding(7)])
    assert numbers(order.rank(view, ()))[0] == 1
    full.running = 0
    assert numbers(order.rank(view, ()))[0] == 0
    turns, joining = Turns(), lines[0].relegated[0]
    turns.since = [9, 9]
    full.running = 1
    turns.joins(joining, lines, BlockPool(9, BLOCK))
    assert turns.since == [0, 10]


def test_a_request_that_waits_for_blocks_of_its_lane_takes_no_turn():
    order, other = ByDeadline(patience=100, turn=4), replace(VOICE, blocks=Share(0, 3))
    stuck = line(other, one(0, "voice", first_by=5, prompt=2 * BLOCK + 1), running=1)
    lines = line(CHAT, one(1, tier=RELEGATED), one(2, first_by=9_000 * MS)), stuck
    view = seen(*lines, now=100, since=3, running=[decoding(7)])._replace(block_size=BLOCK)
    pool, joining = BlockPool(9, BLOCK), lines[0].relegated[0]
    for held, first in ((1, 1), (0, 0)):
        assert numbers(order.rank(view._replace(blocks_of_lane={"voice": held}), ()))[0] == first
        pool.blocks_of_lane["voice"], turns = held, Turns()
        turns.joins(joining, lines, pool)
        assert turns.since == [first ^ 1, 1]


def test_a_joining_request_whose_blocks_fill_its_lane_has_had_its_turn():
    """Its blocks are reserved when its turn is counted."""
    full = line(replace(VOICE, blocks=Share(0, 3)), one(0, "voice", prompt=2 * BLOCK + 1))
    pool, turns = BlockPool(9, BLOCK), Turns()
    pool.blocks_of_lane["voice"], turns.since = 3, [9, 9]
    turns.joins(full.waiting[0], [full], pool)
    assert turns.since == [0, 10]


def test_an_old_untimed_decode_does_not_take_the_turn_of_a_relegated_prompt():
    order = ByDeadline(patience=100, turn=4)
    answer, late = decoding(1, lane="bulk", tier=UNTIMED), one(5, tier=RELEGATED)
    runs = [answer, late, one(7, first_by=200)]
    view = seen(line(CHAT), line(BULK), now=100, step=4, running=runs)
    assert numbers(order.rank(view, runs))[:3] == [1, 5, 7]
    assert numbers(order.rank(view._replace(step=5), runs)) == [7, 5, 1]


def test_work_is_scaled_by_the_drift_before_it_is_compared_with_deadlines():
    view = seen(line(CHAT, job(0, 50, 35), job(1, 60, 17)))
    assert numbers(ByDeadline().rank(view, ())) == [0, 1]
    one_token = row_features(0, 1, 1)
    for _ in range(500):
        view.estimates.learn(one_token, 2 * COST.predict(one_token))
    assert numbers(ByDeadline().rank(view, ())) == [1, 0], "the second alone is in time"


def test_all_requests_are_in_time_where_a_step_of_one_token_costs_nothing():
    """Decodes take no part of such a step."""
    running = [decoding(9, first_by=0)]
    lines = line(CHAT, one(0, first_by=5), one(1, first_by=3))
    pairs = StepCost(Rates(pair=7))
    assert Estimates(pairs).shortest == 0
    assert numbers(ByDeadline().rank(seen(lines, running=running, cost=pairs), ())) == [1, 0]


@pytest.mark.parametrize("order", [FirstCome(), Priority(), ShortestFirst()])
def test_the_other_orders_put_relegated_requests_behind_all_others_that_wait(order):
    waits = [one(i, tier=TIMED if i % 2 else RELEGATED) for i in range(4)]
    runs = [one(9)]
    assert numbers(order.rank(seen(line(CHAT, *waits)), runs)) == [9, 1, 3, 0, 2]


# -- how long a step may take


def times(*running, now=0, policy=BY_SLACK):
    return policy.allow(seen(now=now, running=running)).nanoseconds


def test_a_step_is_as_long_as_the_slack_of_the_decodes():
    shortest = Estimates(COST).shortest
    assert times() == BY_SLACK.stretch * shortest, "nobody decodes"
    assert times(policy=BySlack(stretch=3)) == 3 * shortest
    soon = decoding(1, generated=3, first_token=10 * MS, tpot=20 * MS)
    assert soon.next_by == 70 * MS and times(soon, now=30 * MS) == 40 * MS
    sooner = decoding(2, generated=1, first_token=35 * MS, tpot=20 * MS)
    assert times(soon, sooner, now=30 * MS) == 25 * MS
    assert times(soon, now=90 * MS) == 0, "it is late already"
    assert times(soon, now=390 * MS) == BY_SLACK.stretch * shortest, "and now hopelessly so"


def arriving(lane, *waiting, now=0, prompt=0, **rest):
    """The time of a step beside this lane, whose median prompt has `prompt` tokens."""
    view = seen(line(lane, *waiting), now=now, **rest)
    for _ in range(16 if prompt else 0):
        view.estimates.promises.made(lane.name, prompt, Promise(made=0, span=1, end=NEVER - 1))
    return BY_SLACK.allow(view).nanoseconds


def test_a_step_leaves_requests_that_may_come_time_for_their_prompts():
    estimates = Estimates(COST)
    shortest, alone = estimates.shortest, estimates.prompt_alone
    urgent = Lane("voice", Budget(ttft=120 * MS))
    assert arriving(urgent, prompt=4) == 3 * (120 * MS - alone(4)) // 4
    assert arriving(urgent, prompt=20) == 3 * (120 * MS - alone(20)) // 4
    assert arriving(urgent) == 3 * (120 * MS - alone(32)) // 4, "nothing is known of its prompts"
    calm = Lane("voice", Budget(ttft=320 * MS))
    assert arriving(calm) == 3 * (320 * MS - alone(32)) // 4, "with a short one there is time"
    assert arriving(urgent, prompt=60) == 4 * shortest, "that is the least"
    assert arriving(urgent, prompt=129) == BY_SLACK.stretch * shortest, (
        "they come late, whatever a step takes"
    )
    assert arriving(Lane("chat", Budget(ttft=900 * MS)), prompt=20) == BY_SLACK.stretch * shortest
    assert arriving(replace(urgent, late="take"), prompt=20) == BY_SLACK.stretch * shortest
    assert arriving(Lane("answers", Budget(e2e=90 * MS)), prompt=20) == BY_SLACK.stretch * shortest


def test_a_step_ends_when_the_first_token_of_a_request_just_come_is_due():
    lane = Lane("voice", Budget(ttft=90 * MS))
    longest = arriving(lane, prompt=4)
    assert longest == 57 * MS, "of 90 less 14 three quarters"
    fresh = one(1, "voice", arrived=20 * MS, first_by=110 * MS)
    assert arriving(lane, fresh, now=60 * MS, prompt=4) == 50 * MS
    assert arriving(lane, fresh, now=20 * MS, prompt=4) == longest
    late = one(1, "voice", arrived=50 * MS, first_by=110 * MS)
    assert arriving(lane, late, now=97 * MS, prompt=4) == longest, "it cannot be in time"
    assert arriving(lane, late, now=96 * MS, prompt=4) == 14 * MS
    backlog = one(1, "voice", arrived=0, first_by=110 * MS)
    assert arriving(lane, backlog, now=longest, prompt=4) == 110 * MS - longest
    assert arriving(lane, backlog, now=longest + 1, prompt=4) == longest, "nor is it the only one"
    soon = decoding(2, generated=1, first_token=60 * MS, tpot=20 * MS)
    assert arriving(lane, fresh, now=60 * MS, prompt=4, running=(soon,)) == 20 * MS
    preempted = one(1, "voice", arrived=20 * MS, first_by=110 * MS, first_token=50 * MS)
    assert arriving(lane, preempted, now=60 * MS, prompt=4) == longest, "it came in time"


def test_beside_an_unkeepable_tpot_a_new_request_still_limits_the_prompts_of_a_step():
    strict = decoding(1, generated=1, first_token=65 * MS, tpot=10 * MS)
    lane = Lane("voice", Budget(ttft=130 * MS))

    def least(*waiting):
        return BY_SLACK.allow(seen(line(lane, *waiting), now=60 * MS, running=(strict,))).least

    fresh = one(1, "voice", arrived=15 * MS, first_by=114 * MS)
    estimates = Estimates(COST)
    assert least() > least(fresh) >= BY_SLACK.least
    assert least(fresh) == max(32, (54 * MS - estimates.decoding(1, 4)) // MS)


def test_beside_an_unkeepable_tpot_prompts_have_the_slack_of_the_other_decodes():
    """A step with the least of a prompt takes longer than the strict decode has for a token."""

    def allowed(*running):
        return BY_SLACK.allow(seen(now=30 * MS, running=running))

    strict = decoding(1, generated=1, first_token=25 * MS, tpot=10 * MS)
    patient = decoding(2, generated=1, first_token=0, tpot=300 * MS)
    estimates = Estimates(COST)
    assert strict.tpot < estimates.prompt_alone(1 + BY_SLACK.least) < patient.tpot
    assert allowed(strict).nanoseconds == 5 * MS, "who may miss a step does"
    longest = BY_SLACK.stretch * estimates.shortest - estimates.decoding(1, strict.scheduled)
    token = (estimates.prompt_alone(1 + BY_SLACK.least) - estimates.shortest) / BY_SLACK.least
    assert allowed(strict).least == int(longest / token)
    both, hasty = allowed(strict, patient), decoding(3, first_token=5 * MS, tpot=90 * MS)
    assert BY_SLACK.least < both.least < allowed(strict).least and both.nanoseconds == 5 * MS
    assert allowed(strict, hasty).least < both.least
    assert allowed(hasty).least == BY_SLACK.least


@pytest.mark.parametrize(
    "rest",
    [
        {"first_by": 5, "tpot": 20 * MS},  # no token yet: a short step would bring it no sooner
        {"first_by": 5},
        {"first_token": 1},  # the pace of its tokens is free
        {"first_token": 1, "tpot": 20 * MS, "tier": RELEGATED},
        {"first_token": 1, "tier": UNTIMED},
    ],
)
def test_a_sequence_whose_next_token_is_not_due_shortens_no_step(rest):
    assert times(decoding(1, **rest), now=60 * MS) == BY_SLACK.stretch * Estimates(COST).shortest


@pytest.mark.parametrize("scheduled", [5, 0])
def test_a_sequence_that_needs_more_or_less_than_one_token_shortens_no_step(scheduled):
    """The last token is being computed, or the sequence was preempted and begins anew."""
    other = decoding(1, first_token=1, tpot=20 * MS)
    assert times(other, now=60 * MS) == 0
    other.scheduled = scheduled
    assert times(other, now=60 * MS) == BY_SLACK.stretch * Estimates(COST).shortest


# -- deferred decodes, relegated requests, victims


def test_decodes_without_a_deadline_may_miss_a_step_beyond_their_lanes_least():
    bulk = replace(BULK, slots=Share(least=1))
    running = [decoding(i, lane="bulk", tier=UNTIMED) for i in (3, 1)]
    running += [decoding(5), decoding(6, tier=RELEGATED)]
    found = WithoutDeadline().deferred(seen(line(bulk), line(CHAT), running=running), joins=True)
    assert sorted(numbers(found)) == [1, 6]
    assert Nobody().deferred(seen(), joins=True) == frozenset()


def test_decodes_with_time_to_spare_may_miss_a_step_while_there_are_prompts():
    soon = 2 * Estimates(COST).shortest  # 22 ms
    timed = {"first_token": 0, "tpot": soon}
    running = [decoding(0, **timed), decoding(1, 2, **timed), decoding(2), decoding(3, tpot=soon)]
    running.append(decoding(4, tier=RELEGATED))
    view = seen(line(CHAT), running=running)
    policy = WithTimeToSpare(2)
    assert numbers(policy.deferred(view, joins=False)) == [4], "there are no prompts"
    assert sorted(numbers(policy.deferred(view, joins=True))) == [1, 4], "0 is due in two steps"
    view = view._replace(running=[*running, one(5)])
    assert sorted(numbers(policy.deferred(view, joins=False))) == [1, 4]
    with pytest.raises(SettingError, match="soon must be 1 or more"):
        WithTimeToSpare(0)


@pytest.mark.parametrize(
    "expected, pace, spare", [(10, 0, True), (10, 56, True), (10, 57, False), (0, 57, True)]
)
def test_an_answer_with_an_e2e_limit_misses_steps_only_with_half_its_time_to_spare(
    expected, pace, spare
):
    """With `expected` 10, eight tokens are to come. The answer is due in 896 ms."""
    made = decoding(1, generated=2, most=100, first_token=0, done_by=896 * MS)
    made.request = replace(made.request, expected=expected)
    view = seen(line(CHAT), running=[made])
    if pace:
        view.estimates.promises.paces.ended("chat", 10 * pace * MS, 10)
    assert numbers(WithTimeToSpare(2).deferred(view, joins=True)) == [1][: int(spare)]


def test_a_request_whose_first_token_is_late_even_alone_is_relegated():
    waits = [one(i, first_by=(13 + i) * MS) for i in range(3)]
    started = decoding(7, first_by=0, first_token=5)
    again = one(8, first_by=0, first_token=5)
    runs = [one(5, first_by=13 * MS), one(6, first_by=14 * MS), started]
    runs.append(one(10, tier=RELEGATED, first_by=13 * MS))
    view = seen(line(CHAT, *waits, again), line(BULK, one(9, "bulk", UNTIMED)), running=runs)
    assert numbers(Hopeless().relegated(view)) == [0, 5], "four tokens take 14 ms"
    assert numbers(Keep().relegated(view)) == []
    late = [one(i, tier=RELEGATED, first_by=(13 + i) * MS) for i in range(3)]
    runs = [one(3, tier=RELEGATED, first_by=5, first_token=5), started, one(4, first_by=99 * MS)]
    runs.append(one(6, tier=RELEGATED, first_by=5, first_token=6))
    again = seen(line(CHAT, *late), line(BULK), running=runs)
    assert numbers(Hopeless().restored(again)) == [1, 2, 3]
    assert numbers(Keep().restored(again)) == []
    assert numbers(Hopeless().relegated(view._replace(now=MS))) == [0, 1, 5, 6]


def told(number, expected, **rest):
    made = one(number, **rest)
    made.request = replace(made.request, expected=expected)
    return made


def test_a_waiting_request_that_would_end_too_late_is_relegated():
    """A prompt takes 14 ms, and four more tokens of an answer 44 ms."""
    waits = [one(i, done_by=(200 + i) * MS) for i in range(2)]
    waits += [told(2, 2, done_by=200 * MS), told(3, 4, most=99, done_by=189 * MS)]
    waits += [one(4), one(5, first_by=156 * MS), decoding(6, first_token=0, done_by=183 * MS)]
    waits.append(
        one(8, arrived=143 * MS, done_by=183 * MS)
    )  # just come: its answer counts for half of its time at most
    view = seen(line(CHAT, *waits), now=143 * MS, running=[decoding(7, first_token=0, done_by=9)])
    assert numbers(Hopeless().relegated(view)) == [5, 3], "nothing is known of the others"
    for _ in range(ENOUGH):
        view.estimates.lengths.ended(decoding(9, generated=5))
    assert numbers(Hopeless().relegated(view)) == [5, 0, 3, 6]
    view.estimates.promises.paces.ended("chat", 10 * 12 * MS, 10)
    assert numbers(Hopeless().relegated(view)) == [5, 0, 1, 3, 6], "tokens come more slowly"
    taking = seen(line(replace(CHAT, late=TAKE), *waits))
    assert numbers(Hopeless().relegated(taking)) == []


def test_an_answer_longer_than_those_before_may_still_end_too_late():
    for others, most in (
        (decoding(9, generated=5), 5),
        (decoding(9, generated=300, prompt=4), 300),
    ):
        preempted = decoding(1, generated=12, most=500, first_token=9, done_by=4_000 * MS)
        fresh = one(2, most=500, done_by=4_000 * MS)
        view = seen(line(CHAT, preempted, fresh), now=2_500 * MS)
        for _ in range(ENOUGH):
            view.estimates.lengths.ended(others)
        for _ in range(KEPT if most == 300 else 0):  # long prompts have short answers
            view.estimates.lengths.ended(decoding(9, generated=2, prompt=90))
        late = [1] if most == 5 else [1, 2]
        assert numbers(Hopeless().relegated(view)) == late


def test_a_request_for_0_tokens_is_not_late_for_its_first_token():
    view = seen(line(CHAT, one(1, first_by=9, most=0), one(2, first_by=9)))
    assert numbers(Hopeless().relegated(view)) == [2]


def test_a_relegated_request_that_can_end_in_time_again_is_restored():
    late = [one(i, tier=RELEGATED, done_by=(13 + i) * MS) for i in range(2)]
    again = {"tier": RELEGATED, "first_by": 9, "first_token": 5}
    late.append(decoding(2, **again, done_by=99 * MS))
    runs = [decoding(3, **again, done_by=99 * MS), decoding(4, **again)]
    runs.append(decoding(5, tier=RELEGATED, first_token=5, done_by=99 * MS))
    view = seen(line(CHAT, *late), running=runs)
    assert numbers(Hopeless().restored(view)) == [1, 2, 3, 4], "the last has only an end to keep"
    assert numbers(Hopeless().restored(view._replace(now=14 * MS + 1))) == [2, 3, 4]


def test_victims_are_ranked_by_tier_then_by_lane_then_by_what_they_lose():
    worse, better = Lane("worse", priority=1), Lane("better")
    runs = [
        one(0, "better", TIMED),
        one(1, "better", UNTIMED, computed=1),
        one(2, "worse", UNTIMED, computed=9),
        one(3, "worse", UNTIMED, computed=5),
        one(4, "worse", UNTIMED, computed=5),
        one(5, "better", RELEGATED),
    ]
    view = seen(line(worse), line(better), running=runs)
    assert numbers(ByLane().victims(view)) == [4, 3, 2, 1, 5, 0]
    spared = view._replace(last_victim=4)
    assert numbers(ByLane().victims(spared)) == [3, 2, 1, 4, 5, 0], "but never before a later tier"


def test_blocks_that_others_use_are_no_loss_of_a_victim():
    """Three sequences have computed 40, 20 and 9 tokens in blocks of four, and share some."""
    runs = [
        one(1, "bulk", UNTIMED, computed=40, blocks=[*range(1, 11)]),  # 8 tokens of its own
        one(2, "bulk", UNTIMED, computed=20, blocks=[1, 2, 21, 22, 23]),  # 12
        one(3, "bulk", UNTIMED, computed=9, blocks=[31, 32, 33]),
    ]
    view = seen(line(BULK), running=runs)
    assert numbers(ByLane().victims(view)) == [3, 2, 1], "if nothing is shared"
    view = view._replace(block_size=4, shared={1, 2, 3, 4, 5, 6, 7, 8})
    assert numbers(ByLane().victims(view)) == [1, 3, 2]


@pytest.mark.parametrize("join", [Dynamic(3, 10), LengthClasses(3, (9,), 10)])
def test_a_relegated_request_joins_a_group_when_its_window_is_over(join):
    lines = line(CHAT, one(0, tier=RELEGATED, arrived=5))
    assert join.start(View(6, (lines,))).wake_at == 15
    start = join.start(View(15, (lines,)))
    assert start.count == 1 and numbers(start.first) == [0]


# -- what is refused


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Share(3, 2), "a share is from 3 to 2: 0 <= least <= most"),
        (lambda: Share(-1), "a share is from -1"),
        (lambda: ByDeadline(patience=-1), "patience must be 0 or more and turn 1 or more"),
        (lambda: ByDeadline(turn=0), "turn 1 or more"),
        (lambda: BySlack(least=0), "least, stretch and brisk must be 1 or more"),
        (lambda: BySlack(stretch=0), "least, stretch and brisk must be 1 or more"),
        (lambda: BySlack(brisk=0), "least, stretch and brisk must be 1 or more"),
        (lambda: BySlack(sure=0), "sure a share"),
        (lambda: BySlack(sure=1.1), "sure a share"),
        (lambda: Policies(mix=Alternate(), defer=WithoutDeadline()), "mix must be Mixed"),
        (lambda: Policies(mix=PrefillFirst(), defer=WithoutDeadline()), "mix must be Mixed"),
        (lambda: Policies(Static(3), preempt=ByLane()), "Static starts groups, and a group is"),
        (lambda: Policies(Dynamic(3, 1), preempt=ByLane()), "preempt must be Youngest"),
        (lambda: Policies(LengthClasses(3, (), 1), chunk=BySlack()), "not by BySlack"),
        (lambda: settings(order=ByDeadline()), "ByDeadline predicts times, and there is no cost"),
        (lambda: settings(chunk=BySlack()), "BySlack predicts times"),
        (lambda: settings(relegate=Hopeless()), "Hopeless predicts times"),
        (
            lambda: Settings(8, BLOCK, tuple(Lane(n, slots=Share(33)) for n in "ab")),
            r"the lanes keep 66 slots at least \(.*\), and there are 64",
        ),
        (
            lambda: Settings(8, BLOCK, tuple(Lane(n, blocks=Share(5)) for n in "ab")),
            r"the lanes keep 10 blocks at least \(a 5 and b 5\), and there are 8",
        ),
        (
            lambda: Settings(8, BLOCK, (Lane("a", slots=Share(0, 0)),)),
            "lane 'a' has no slots: nothing of it could ever run",
        ),
        (lambda: Settings(8, BLOCK, (Lane("a", chunk=0),)), "lane 'a' has a chunk of 0 tokens"),
    ],
)
def test_settings_that_cannot_be_obeyed_are_refused_by_name(make, words):
    with pytest.raises(SettingError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


def settings(**parts):
    return Settings(8, BLOCK, (Lane(),), Policies(**parts))


def test_a_step_sized_by_its_time_has_step_tokens_cells():
    assert Policies(chunk=BySlack(), step_tokens=80).cells(1_000) == 80
    assert not Policies(chunk=Fixed(8)).goes_by_tier
    assert Policies(relegate=Hopeless()).goes_by_tier and Policies(preempt=ByLane()).goes_by_tier
    assert Policies(defer=WithoutDeadline()).goes_by_tier
