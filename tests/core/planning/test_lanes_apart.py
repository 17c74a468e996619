"""Lanes with budgets take slots and blocks from those without; each lane keeps to its limits."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.batch import Output, Want
from headway.core.commands import Add, Cancel
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.planning.candidates import FAR, in_order, in_time_first, named_first
from headway.core.planning.lane_limits import LaneLimits
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Fixed
from headway.core.policies.defer import WithoutDeadline
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.policies.relegate import Hopeless
from headway.core.request import Finish
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from tests.traces import BLOCK, MS, Crowd, ask

COST = StepCost.of(10 * MS, per_token=MS)
BULK = Lane("bulk", priority=1)
CHAT = Lane("chat", Budget(ttft=10_000 * MS, tpot=1_000 * MS))
VOICE = replace(CHAT, name="voice")
TAKING = Policies(Continuous(2), preempt=ByLane())
SPARING = replace(TAKING, preempt=Youngest(), order=ByDeadline())  # knows no tiers


def scheduler_of(blocks, policies, *lanes):
    return Scheduler(Settings(blocks, BLOCK, lanes or (BULK, CHAT), policies, cost=COST))


def add(scheduler, *names, prompt=3, most=30, now=0):
    """Requests named after their lane, each with a prompt of its own."""
    made = [ask(n, (50 + ord(n[-1]),) * prompt, most, now, lane=n[:-1]) for n in names]
    for request in made:
        scheduler.apply([Add(request)], now)


def step(scheduler, now=0, said=(9,)):
    """The ids and tokens of the next step's rows; each row that wants a token gets `said`."""
    names = {s.number: s.request.id for s in scheduler.roster.by_id.values()}
    scheduler.apply((), now)
    batch = scheduler.schedule(now)
    scheduler.check()
    outputs = tuple(said if row.want is Want.LAST else () for row in batch.rows)
    scheduler.commit(batch, Output(outputs), now)
    scheduler.check()
    return {names[row.sequence]: len(row.tokens) for row in batch.rows}


def running(scheduler):
    return sorted(each.request.id for each in scheduler.roster.running.values())


# -- slots and blocks


@pytest.mark.parametrize("order", [Priority(), ByDeadline()])
def test_a_slot_is_taken_from_a_lane_without_a_deadline_down_to_its_least(order):
    bulk = replace(BULK, slots=Share(least=1))
    scheduler = scheduler_of(32, replace(TAKING, order=order), bulk, CHAT)
    add(scheduler, "bulka", "bulkb", "bulkc")
    step(scheduler)
    assert running(scheduler) == ["bulka", "bulkb"]
    add(scheduler, "chatd", "chate")
    assert step(scheduler) == {"bulka": 1, "chatd": 3}, "the youngest loses its slot"
    assert step(scheduler) == {"bulka": 1, "chatd": 1}, "and the least stays"
    assert scheduler.roster.preemptions == 1


@pytest.mark.parametrize("share", [{"step_tokens": Share(most=2)}, {"chunk": 2}])
def test_a_request_that_takes_blocks_may_have_what_the_step_had_given_to_its_victim(share):
    chat = replace(CHAT, budget=Budget(ttft=50 * MS), **share)
    policies = replace(TAKING, relegate=Hopeless(), chunk=Fixed(3))
    scheduler = scheduler_of(3, policies, chat)
    add(scheduler, "chata", prompt=2 * BLOCK, most=1)
    assert step(scheduler, 100 * MS) == {"chata": 2}, "it is late"
    add(scheduler, "chatb", prompt=2 * BLOCK, most=1, now=100 * MS)
    assert step(scheduler, 100 * MS) == {"chatb": 2}
    assert scheduler.roster.preemptions == 1


def test_two_timed_requests_each_take_a_slot_of_another_request():
    scheduler = scheduler_of(32, TAKING)
    add(scheduler, "bulka", "bulkb")
    step(scheduler)
    add(scheduler, "chatc", "chatd")
    assert step(scheduler) == {"chatc": 3, "chatd": 3}


@pytest.mark.parametrize(
    "kept", [{"slots": Share(1)}, {"blocks": Share(1)}], ids=["slots", "blocks"]
)
def test_a_sequence_within_its_lanes_least_is_not_preempted(kept):
    scheduler = scheduler_of(32, replace(TAKING, join=Continuous(1)), replace(BULK, **kept), CHAT)
    add(scheduler, "bulka")
    step(scheduler)
    add(scheduler, "chatb")
    assert step(scheduler) == {"bulka": 1}


def test_waiting_requests_are_not_ranked_while_no_slot_can_be_taken():
    bulk = replace(BULK, slots=Share(least=1))
    scheduler = scheduler_of(32, replace(TAKING, order=ByDeadline()), bulk, CHAT)
    add(scheduler, "bulka", "chatb")
    step(scheduler)
    add(scheduler, "chatc", "chatd")
    with patch("headway.core.planning.plan.named_first", side_effect=named_first) as ranked:
        assert step(scheduler) == {"bulka": 1, "chatb": 1}
        assert not ranked.called
        scheduler.apply([Cancel("chatb")], 0)
        assert step(scheduler) == {"bulka": 1, "chatc": 3}
        assert ranked.called


def test_as_many_sequences_are_preempted_as_blocks_are_needed():
    scheduler = scheduler_of(4, replace(TAKING, join=Continuous(8)))
    add(scheduler, "bulka", "bulkb", "bulkc", "bulkd", most=9)
    assert len(step(scheduler)) == 4
    add(scheduler, "chate", prompt=7, most=1)
    assert set(step(scheduler)) == {"bulka", "bulkb", "chate"}
    assert scheduler.roster.preemptions == 2


@pytest.mark.parametrize(
    "kept", [{"slots": Share(1)}, {"blocks": Share(2)}], ids=["slots", "blocks"]
)
def test_no_sequence_is_preempted_if_its_blocks_would_not_suffice(kept):
    """The lane's least keeps one of its two sequences, so at most three blocks come free."""
    bulk = replace(BULK, **kept)
    scheduler = scheduler_of(4, TAKING, bulk, CHAT)
    add(scheduler, "bulka", "bulkb", prompt=4, most=12)
    step(scheduler)
    add(scheduler, "chatc", prompt=13, most=1)
    for _ in range(3):
        assert set(step(scheduler)) == {"bulka", "bulkb"}
    assert scheduler.roster.preemptions == 0


def test_preempting_a_sequence_does_not_free_the_blocks_it_shares():
    """Two sequences share two blocks. One of them frees only its own block, both free four."""
    for wanted, taken in ((4, 1), (12, 2)):
        scheduler = scheduler_of(4, replace(TAKING, join=Continuous(4)))
        scheduler.apply([Add(ask("a", (1,) * 9, 3, lane="bulk"))], 0)
        step(scheduler)
        scheduler.apply([Add(ask("b", (1,) * 9, 3, lane="bulk"))], 0)
        assert step(scheduler) == {"a": 1, "b": 1} and scheduler.pool.num_free == 0
        add(scheduler, "chatc", prompt=wanted, most=1)
        step(scheduler)
        assert scheduler.roster.preemptions == taken


@pytest.mark.parametrize(
    "prompt, victims",
    [
        (3, ["a"]),
        (7, ["b"]),
        (15, ["c"]),
        (19, ["a", "c"]),
        (23, ["b", "c"]),
        (27, ["a", "b", "c"]),
    ],
)
def test_no_sequence_is_preempted_that_the_other_victims_make_unnecessary(prompt, victims):
    """Three sequences hold 1, 2 and 4 blocks, none is free, and the smallest is taken first."""
    scheduler = scheduler_of(7, replace(TAKING, join=Continuous(5)))
    for name, tokens in (("a", 3), ("b", 7), ("c", 15)):
        add(scheduler, f"bulk{name}", prompt=tokens, most=9)
    assert len(step(scheduler)) == 3 and scheduler.pool.num_free == 0
    add(scheduler, "chatd", prompt=prompt, most=1)
    assert step(scheduler)["chatd"] == prompt
    waiting = [each.request.id for each in scheduler.roster.lines["bulk"].waiting]
    assert waiting == [f"bulk{name}" for name in victims]


def test_blocks_of_a_prefix_in_use_need_not_come_free():
    scheduler = scheduler_of(4, replace(TAKING, join=Continuous(4)))
    scheduler.apply([Add(ask("keeps", (1,) * 8, 5, lane="chat"))], 0)
    step(scheduler)
    add(scheduler, "bulka", most=4)
    step(scheduler)
    assert scheduler.pool.num_free == 0
    scheduler.apply([Add(ask("late", (1,) * 9, 3, lane="chat"))], 0)
    assert step(scheduler) == {"keeps": 1, "late": 1}, "one block is lacking, and bulk has it"


def test_a_growing_sequence_takes_blocks_from_later_tiers_then_from_its_own():
    scheduler = scheduler_of(3, replace(TAKING, join=Continuous(3)))
    add(scheduler, "chata", "bulkb", "chatc", prompt=4, most=8)
    assert len(step(scheduler)) == 3
    assert step(scheduler) == {"chata": 1}, "bulk's goes to chata, and chatc has lost its own"
    assert scheduler.roster.preemptions == 2
    for _ in range(3):
        assert step(scheduler)["chata"] == 1


@pytest.mark.parametrize("least", [0, 1])
def test_the_oldest_of_a_later_tier_waits_for_blocks_and_keeps_its_own(least):
    scheduler = scheduler_of(3, TAKING, BULK, replace(CHAT, slots=Share(least)))
    add(scheduler, "chata", "bulkb", prompt=4, most=5)
    assert step(scheduler) == {"chata": 4, "bulkb": 4}
    for _ in range(4):
        assert step(scheduler) == {"chata": 1}
    assert step(scheduler) == {"bulkb": 1} and scheduler.roster.preemptions == 0


def test_a_sequence_preempted_in_a_step_has_no_row_in_it():
    scheduler = scheduler_of(3, Policies(Crowd(3), preempt=ByLane()))
    add(scheduler, "chata", prompt=4, most=8)
    add(scheduler, "bulkb", prompt=3, most=8)
    add(scheduler, "bulkc", prompt=4, most=8)
    step(scheduler)
    policies = replace(scheduler.settings.policies, step_tokens=2)
    scheduler.settings = replace(scheduler.settings, policies=policies)
    assert step(scheduler) == {"chata": 1} and running(scheduler) == ["chata"]


def test_the_oldest_of_the_first_tier_takes_what_other_lanes_keep_and_ends():
    bulk = replace(BULK, slots=Share(least=1), blocks=Share(least=2))
    scheduler = scheduler_of(4, replace(TAKING, join=Continuous(3)), bulk, CHAT)
    add(scheduler, "bulka", prompt=8, most=8)
    step(scheduler)
    add(scheduler, "chatb", prompt=4, most=12)
    seen = [set(step(scheduler)) for _ in range(8)]
    assert {"chatb"} in seen and scheduler.roster.preemptions == 1
    while scheduler.roster.by_id:
        step(scheduler)
    assert [row.finish for row in scheduler.ledger.requests] == [Finish.LENGTH] * 2


def test_a_kept_sequence_is_spared_while_a_timed_one_can_be_preempted():
    bulk = replace(BULK, slots=Share(least=1), blocks=Share(least=5))
    scheduler = scheduler_of(8, replace(TAKING, join=Continuous(3)), bulk, CHAT)
    add(scheduler, "chata", "chatb", prompt=7, most=9)
    add(scheduler, "bulkc", prompt=7, most=9)
    while scheduler.roster.by_id:
        step(scheduler)
    lost = {row.id: row.preemptions for row in scheduler.ledger.requests}
    assert lost["chatb"] > 0 and lost["bulkc"] == lost["chata"] == 0


LEASTS = [{"slots": Share(1)}, {"blocks": Share(2)}, {"slots": Share(1), "blocks": Share(2)}]
FAIR = Fairly(ShortestFirst(), {})


@pytest.mark.parametrize("kept", LEASTS, ids=["slots", "blocks", "both"])
@pytest.mark.parametrize("order", [Priority(), FirstCome(), ShortestFirst(), FAIR, ByDeadline()])
def test_the_next_free_slot_is_for_a_lane_below_its_least_whatever_the_order(order, kept):
    scheduler = scheduler_of(32, replace(TAKING, order=order), replace(BULK, **kept), CHAT)
    add(scheduler, "chata", "chatb", "chatc")
    step(scheduler)
    add(scheduler, "bulkd", "bulke", prompt=7)
    step(scheduler)
    assert running(scheduler) == ["chata", "chatb"], "nobody loses a slot for it"
    scheduler.apply([Cancel("chata")], 0)
    assert step(scheduler) == {"bulkd": 7, "chatb": 1}
    scheduler.apply([Cancel("chatb")], 0)
    assert step(scheduler) == {"bulkd": 1, "chatc": 3}, "its lane has what it keeps"
    assert scheduler.roster.preemptions == 0


def test_a_request_larger_than_its_lanes_kept_blocks_does_not_go_first():
    """The request needs three blocks and its lane keeps two, so it would lose them at once. The one
    behind it, which needs one, does not go first either."""
    scheduler = scheduler_of(32, TAKING, replace(BULK, blocks=Share(2)), CHAT)
    add(scheduler, "chata", "chatb")
    step(scheduler)
    add(scheduler, "bulkc", prompt=9)
    add(scheduler, "chatd", "bulke")
    scheduler.apply([Cancel("chata")], 0)
    assert step(scheduler) == {"chatb": 1, "chatd": 3}


class ByLetter:
    """An order by the last letter of the id, running or not."""

    def rank(self, view, running):
        waiting = [each for line in view.lines for each in line.waiting]
        yield from sorted([*running, *waiting], key=lambda each: each.request.id[-1])


def test_lanes_below_their_least_go_first_and_running_sequences_keep_their_place():
    lanes = replace(BULK, slots=Share(2)), replace(CHAT, slots=Share(1)), Lane("rest")
    policies = replace(TAKING, order=ByLetter(), join=Continuous(3))
    scheduler = scheduler_of(32, policies, *lanes)
    add(scheduler, "resta", "reste")
    step(scheduler)
    add(scheduler, "restb", "bulkc", "chatd", "bulkf", "bulkg", "chath")
    runs = [*scheduler.roster.running.values()]

    def ranked(policies):
        limits = LaneLimits(scheduler.roster, scheduler.pool)
        order = in_order(policies, scheduler.view(0), runs, limits)
        return " ".join([each.request.id for each in order])

    assert ranked(policies) == "resta bulkc chatd bulkf restb reste bulkg chath"
    nobody_keeps = replace(policies, preempt=Youngest())
    assert ranked(nobody_keeps) == "resta restb bulkc chatd reste bulkf bulkg chath"
    keeping = replace(nobody_keeps, defer=WithoutDeadline())
    assert ranked(keeping) == ranked(policies)
    by_deadline = replace(nobody_keeps, order=ByDeadline())
    assert ranked(by_deadline) == "chatd bulkc bulkf chath resta reste restb bulkg"
    assert ranked(replace(by_deadline, order=Fairly(ByDeadline()))) == ranked(by_deadline)


@pytest.mark.parametrize("budget", [Budget(), CHAT.budget])
@pytest.mark.parametrize("policies", [TAKING, SPARING])
def test_a_growing_sequence_spares_what_another_lane_of_its_tier_keeps(policies, budget):
    """chatb gives way itself, although keepsc came later."""
    lanes = Lane("keeps", budget, slots=Share(least=1)), Lane("chat", budget)
    scheduler = scheduler_of(8, replace(policies, join=Continuous(3)), *lanes)
    add(scheduler, "chata", "chatb", "keepsc", prompt=7, most=9)
    while scheduler.roster.by_id:
        step(scheduler)
    lost = {row.id: row.preemptions for row in scheduler.ledger.requests}
    assert lost["chatb"] > 0 and lost["keepsc"] == lost["chata"] == 0


@pytest.mark.parametrize("policies", [TAKING, SPARING])
def test_the_oldest_takes_what_another_lane_of_its_tier_keeps_and_ends(policies):
    lanes = Lane("keeps", slots=Share(least=1)), Lane("bulk")
    scheduler = scheduler_of(4, replace(policies, join=Continuous(3)), *lanes)
    add(scheduler, "bulka", "keepsb", prompt=7, most=9)
    while scheduler.roster.by_id:
        step(scheduler)
    rows = scheduler.ledger.requests
    assert [(row.id, row.preemptions) for row in rows] == [("bulka", 0), ("keepsb", 1)]


def test_filler_that_fits_joins_although_a_timed_request_does_not_fit():
    """The timed request could not use these blocks yet. It takes them once they are enough."""
    scheduler = scheduler_of(8, replace(TAKING, join=Continuous(3)))
    add(scheduler, "chata", prompt=16, most=6)
    step(scheduler)
    add(scheduler, "chatb", prompt=16, most=2)
    add(scheduler, "bulkc", prompt=3, most=20)
    step(scheduler)
    assert running(scheduler) == ["bulkc", "chata"]
    while "chatb" not in running(scheduler):
        step(scheduler)
    assert "chata" not in scheduler.roster.by_id


@pytest.mark.parametrize("slots", [3, 9])
def test_a_timed_request_that_fits_by_preempting_filler_overtakes_many_misfits(slots):
    """With three slots the request needs bulk's slot, too."""
    scheduler = scheduler_of(12, replace(TAKING, join=Continuous(slots)))
    add(scheduler, "bulka", "bulkb", prompt=8, most=20)
    add(scheduler, "chatc", prompt=24, most=20)
    step(scheduler)
    add(scheduler, *[f"chat{name}" for name in "defghijklmnopqrst"], prompt=28, most=1)
    add(scheduler, "chatu", prompt=12, most=1)
    assert set(step(scheduler)) == {"chatc", "chatu"}, "bulk's four blocks and a free one"


def test_many_misfits_that_no_victims_can_make_room_for_preempt_nobody():
    scheduler = scheduler_of(12, replace(TAKING, join=Continuous(9)))
    add(scheduler, "bulka", prompt=7, most=20)
    add(scheduler, "chatb", prompt=35, most=8)
    step(scheduler)
    add(scheduler, *[f"chat{name}" for name in "cdefghijklmnopqrstuvwxyz"], prompt=28, most=1)
    assert set(step(scheduler)) == {"bulka", "chatb"} and scheduler.roster.preemptions == 0


def test_the_last_victim_is_not_spared_at_the_cost_of_an_earlier_tier():
    scheduler = scheduler_of(4, replace(TAKING, join=Continuous(3)))
    add(scheduler, "chata", "chatb", "bulkc", prompt=4, most=8)
    step(scheduler)
    scheduler.roster.last_victim = 2
    step(scheduler)
    assert running(scheduler) == ["chata", "chatb"]


def test_a_step_that_preempts_admits_other_lanes_but_not_the_victims_lane():
    scheduler = scheduler_of(6, replace(TAKING, join=Continuous(3)))
    add(scheduler, "bulka", "bulkb", "bulkc", most=9)
    step(scheduler)
    add(scheduler, "chatd", "bulke", most=9)
    assert step(scheduler) == {"bulka": 1, "bulkb": 1, "chatd": 3}
    assert step(scheduler) == {"bulka": 1, "bulkb": 1, "chatd": 1}


@pytest.mark.parametrize("lane, joins", [("bulk", False), ("chat", False), ("voice", True)])
def test_a_step_that_preempts_admits_neither_the_victims_lane_nor_a_later_tier(lane, joins):
    """chata has the last free block, chatb gives up its own, and a request comes that would fit."""
    scheduler = scheduler_of(3, replace(TAKING, join=Continuous(3)), BULK, CHAT, VOICE)
    add(scheduler, "chata", "chatb", prompt=4, most=8)
    step(scheduler)
    add(scheduler, f"{lane}c", most=2)
    assert step(scheduler) == ({"chata": 1, f"{lane}c": 3} if joins else {"chata": 1})
    assert scheduler.roster.preemptions == 1


def test_a_step_that_preempts_looks_no_further_than_far_for_one_that_may_join():
    """bulkb gives its slot to chatc, and then nobody of its lane may join, however many wait."""
    scheduler = scheduler_of(64, replace(TAKING, order=ByDeadline(), defer=WithoutDeadline()))
    add(scheduler, "bulka", "bulkb")
    step(scheduler)
    scheduler.apply([Add(ask(f"w{i}", 3, 1, lane="bulk")) for i in range(2 * FAR)], 0)
    add(scheduler, "chatc")
    named = dict[str, None]()  # in order; bulkb is named as one that ran and as one that waits

    def noting(ranked, *rest):
        for sequence in in_time_first(ranked, *rest):
            named[sequence.request.id] = None
            yield sequence

    with patch("headway.core.planning.plan.in_time_first", noting):
        assert step(scheduler) == {"bulka": 1, "chatc": 3}
    assert [*named] == ["chatc", "bulka", "bulkb", *(f"w{i}" for i in range(FAR - 1))]


def test_a_slot_that_came_free_is_not_taken_twice():
    """bulkb takes bulkc's blocks to grow; chatd joins in that slot, and bulkb keeps its own."""
    scheduler = scheduler_of(5, replace(TAKING, join=Continuous(3)))
    add(scheduler, "chata", "bulkb", prompt=4, most=8)
    add(scheduler, "bulkc", prompt=5, most=3)
    step(scheduler)
    add(scheduler, "chatd", prompt=1, most=3)
    assert step(scheduler) == {"chata": 1, "bulkb": 1, "chatd": 1}
    assert scheduler.roster.preemptions == 1


def test_timed_requests_join_before_filler_whose_slots_they_would_take():
    """First come alone would start bulk's requests, and preempt them a step later."""
    scheduler = scheduler_of(32, TAKING)
    add(scheduler, "bulka", "bulkb", "chatc", "bulkd", "chate")
    assert step(scheduler) == {"chatc": 3, "chate": 3}
    bulk = replace(BULK, slots=Share(least=1))
    scheduler = scheduler_of(32, TAKING, bulk, CHAT)
    add(scheduler, "bulka", "bulkb", "chatc", "bulkd", "chate")
    assert step(scheduler) == {"bulka": 3, "chatc": 3}, "but for the least"
    scheduler = scheduler_of(32, replace(TAKING, join=Continuous(4), step_tokens=16))
    add(scheduler, "bulka", "bulkb", "chatc", "bulkd")
    assert list(step(scheduler)) == ["chatc", "bulka", "bulkb", "bulkd"]


def test_a_running_prompt_is_computed_though_an_earlier_deadline_waits():
    """That no other request could join was once taken for the end of the step."""
    order = ByDeadline(most_in_time=False)
    scheduler = scheduler_of(32, Policies(Continuous(1), order=order, chunk=Fixed(2)))
    voice = Lane("voice", Budget(ttft=50 * MS))
    scheduler = scheduler_of(32, scheduler.settings.policies, BULK, CHAT, voice)
    add(scheduler, "chata", prompt=6, most=2)
    step(scheduler)
    add(scheduler, "voiceb", prompt=6, most=2)
    assert step(scheduler) == {"chata": 2}


# -- relegated, deferred


def test_a_relegated_request_waits_apart_and_is_served_after_those_in_time():
    policies = Policies(Continuous(1), order=ByDeadline(), relegate=Hopeless())
    chat = Lane("chat", Budget(ttft=40 * MS))
    scheduler = scheduler_of(32, policies, BULK, chat)
    add(scheduler, "chata", prompt=3, most=2)
    step(scheduler)
    add(scheduler, "chatb", prompt=3, most=2)
    assert step(scheduler, now=60 * MS) == {"chata": 1}
    assert [s.request.id for s in scheduler.roster.lines["chat"].relegated] == ["chatb"]
    assert scheduler.load(60 * MS).lanes["chat"].waiting == 1
    add(scheduler, "chatc", prompt=3, most=1, now=60 * MS)
    assert step(scheduler, now=61 * MS) == {"chatc": 3}
    assert step(scheduler, now=62 * MS) == {"chatb": 3}


PATIENT = replace(TAKING, order=ByDeadline(patience=400 * MS))


@pytest.mark.parametrize("now, kept", [(399 * MS, False), (400 * MS, True)])
def test_timed_requests_take_no_slot_of_an_old_relegated_sequence(now, kept):
    scheduler = scheduler_of(32, PATIENT)
    add(scheduler, "chata", "bulkb")
    step(scheduler)
    scheduler.roster.relegate(scheduler.roster.by_id["chata"])
    add(scheduler, "chatc", "chatd", now=now)
    assert step(scheduler, now) == ({"chata": 1} if kept else {"chatd": 3}) | {"chatc": 3}


@pytest.mark.parametrize("since, first", [(2, "chatb"), (3, "chata")])
def test_an_old_relegated_request_joins_before_timed_ones_in_its_turn(since, first):
    order = replace(PATIENT.order, turn=4)
    scheduler = scheduler_of(32, replace(PATIENT, join=Continuous(1), order=order))
    add(scheduler, "chata")
    scheduler.roster.relegate(scheduler.roster.by_id["chata"])
    add(scheduler, "chatb", now=400 * MS)
    scheduler.roster.turns.since = [since, 0]
    assert step(scheduler, 400 * MS) == {first: 3}


@pytest.mark.parametrize("now, least, kept", [(399, 0, False), (400, 0, True), (399, 3, True)])
def test_a_timed_victim_is_taken_before_an_old_or_kept_relegated_one(now, least, kept):
    chat = replace(CHAT, slots=Share(least))
    scheduler = scheduler_of(5, replace(PATIENT, join=Continuous(3)), BULK, chat)
    for name, prompt in (("a", 2), ("b", 4), ("c", 10)):
        add(scheduler, f"chat{name}", prompt=prompt, most=3)
    step(scheduler)
    scheduler.roster.relegate(scheduler.roster.by_id["chatc"])
    lost, other = ("chatb", "chatc") if kept else ("chatc", "chatb")
    assert step(scheduler, now * MS) == {"chata": 1, other: 1}
    assert scheduler.roster.by_id[lost].preemptions == 1


def test_a_running_request_can_be_relegated_before_its_first_token():
    policies = Policies(Continuous(1), chunk=Fixed(2), relegate=Hopeless())
    scheduler = scheduler_of(32, policies, Lane("chat", Budget(ttft=40 * MS)))
    add(scheduler, "chata", prompt=6)
    step(scheduler)
    step(scheduler, now=39 * MS)
    (only,) = scheduler.roster.running.values()
    assert only.tier == 1 and scheduler.roster.lines["chat"].relegated == []


def test_a_full_chunk_of_prompts_defers_no_decode():
    policies = Policies(Continuous(4), chunk=Fixed(2), defer=WithoutDeadline(), step_tokens=6)
    scheduler = scheduler_of(32, policies)
    add(scheduler, "bulka", prompt=2)
    step(scheduler)
    add(scheduler, "chatb", prompt=8)
    assert step(scheduler) == {"bulka": 1, "chatb": 2}, "it joins in what is left"
    assert step(scheduler) == {"chatb": 2, "bulka": 1}


def test_the_first_deferrable_decode_has_the_only_token_left():
    policies = Policies(Continuous(4), order=ByDeadline(), defer=WithoutDeadline(), step_tokens=6)
    scheduler = scheduler_of(32, policies)
    add(scheduler, "bulka", "bulkb", prompt=2)
    step(scheduler)
    add(scheduler, "chatc", prompt=5)
    assert step(scheduler) == {"chatc": 5, "bulka": 1}
    assert step(scheduler) == {"chatc": 1, "bulka": 1, "bulkb": 1}


def test_prompts_without_a_deadline_share_one_chunk():
    policies = Policies(Continuous(4), chunk=Fixed(2), defer=WithoutDeadline(), step_tokens=9)
    scheduler = scheduler_of(32, policies)
    add(scheduler, "bulka", "bulkb", "bulkc", prompt=6)
    for _ in range(9):
        assert sum(step(scheduler, said=()).values()) <= 2


def test_deferrable_decodes_miss_a_step_that_has_no_time_for_them():
    policies = Policies(
        Continuous(4), chunk=BySlack(least=1, stretch=2), defer=WithoutDeadline(), step_tokens=16
    )
    scheduler = scheduler_of(64, policies, BULK, Lane("chat", Budget(tpot=13 * MS)))
    add(scheduler, "bulka", "bulkb", "bulkc", prompt=2)
    for _ in range(6):
        step(scheduler)
    add(scheduler, "chatd", prompt=2)
    while "chatd" not in (seen := step(scheduler)):
        pass
    assert seen["chatd"] == 2
    scheduler.roster.running[3].first_token = scheduler.roster.running[3].first_seen = 0
    assert step(scheduler) == {"chatd": 1, "bulka": 1, "bulkb": 1}, "13 ms: three tokens"


@pytest.mark.parametrize("fit", [1, 4, 7, 9, 11])
def test_of_many_deferrable_decodes_the_first_that_fit_the_time_are_served(fit):
    policies = Policies(
        Continuous(16), chunk=BySlack(least=1, stretch=4), defer=WithoutDeadline(), step_tokens=32
    )
    scheduler = scheduler_of(200, policies, BULK, Lane("chat", Budget(tpot=(11 + fit) * MS)))
    names = [f"bulk{letter}" for letter in "abcdefghijkl"]
    add(scheduler, *names, prompt=1)
    for _ in range(24):
        step(scheduler)
    add(scheduler, "chatz", prompt=2)
    while "chatz" not in (seen := step(scheduler)):
        pass
    assert seen["chatz"] == 2
    scheduler.roster.running[12].first_token = scheduler.roster.running[12].first_seen = 0
    assert step(scheduler) == {"chatz": 1, **dict.fromkeys(names[:fit], 1)}


def test_one_of_two_deferrable_decodes_is_preempted_for_the_only_block():
    policies = Policies(Continuous(4), defer=WithoutDeadline(), step_tokens=9)
    scheduler = scheduler_of(3, policies, BULK)
    add(scheduler, "bulka", "bulkb", prompt=3, most=8)
    assert step(scheduler) == {"bulka": 3, "bulkb": 3}
    assert step(scheduler) == {"bulka": 1, "bulkb": 1}
    assert step(scheduler) == {"bulka": 1}, "a block has four tokens"
    assert [s.request.id for s in scheduler.roster.lines["bulk"].waiting] == ["bulkb"]


def test_a_step_in_which_sequences_take_turns_is_priced_too():
    policies = Policies(Crowd(4), chunk=BySlack(least=1, stretch=1), step_tokens=8)
    scheduler = scheduler_of(64, policies)
    add(scheduler, "chata", "chatb", "chatc", prompt=1)
    step(scheduler)
    while len(scheduler.roster.running) < 3:
        step(scheduler)
    while any(each.generated == 0 for each in scheduler.roster.running.values()):
        step(scheduler)
    add(scheduler, "chatd", prompt=5)
    scheduler.settings = replace(scheduler.settings, policies=replace(policies, step_tokens=4))
    assert step(scheduler) == {"chata": 1, "chatb": 1, "chatc": 1, "chatd": 1}
    three = replace(scheduler.settings, policies=replace(policies, step_tokens=3))
    scheduler.settings = three
    assert sum(step(scheduler).values()) == 3


# -- what a lane has at most


def test_a_lanes_own_chunk_limits_its_prompts():
    scheduler = scheduler_of(32, Policies(Continuous(4)), replace(BULK, chunk=2), CHAT)
    add(scheduler, "bulka", "bulkb", "chatc", prompt=5)
    assert step(scheduler) == {"bulka": 2, "chatc": 5}
    assert step(scheduler) == {"bulka": 2, "chatc": 1}
    assert step(scheduler) == {"bulka": 1, "bulkb": 2, "chatc": 1}, "one token is no prompt"


def test_a_lanes_limit_of_step_tokens_holds():
    scheduler = scheduler_of(32, Policies(Continuous(8)), replace(BULK, step_tokens=Share(0, 3)))
    add(scheduler, "bulka", "bulkb", prompt=2, most=3)
    assert step(scheduler) == {"bulka": 2, "bulkb": 1}
    add(scheduler, "bulkc", "bulkd", prompt=2, most=3)
    assert step(scheduler) == {"bulka": 1, "bulkb": 1, "bulkc": 1}
    assert running(scheduler) == ["bulka", "bulkb", "bulkc"], "no more than could all decode"


def test_a_request_named_before_the_others_joins_once():
    """With its lane's chunk used up, bulkb once joined without a token and then joined again."""
    bulk = replace(BULK, slots=Share(least=2), chunk=2)
    scheduler = scheduler_of(32, Policies(Continuous(4), order=ByDeadline()), bulk, CHAT)
    add(scheduler, "bulka", "bulkb", prompt=5)
    assert step(scheduler) == {"bulka": 2} and running(scheduler) == ["bulka", "bulkb"]


def test_a_lanes_slot_limit_holds_back_no_other_lane():
    scheduler = scheduler_of(64, Policies(Continuous(64)), replace(BULK, slots=Share(0, 1)), CHAT)
    for name in "abcdefghijklmnopqrstuvwxyz":
        add(scheduler, f"bulk{name}")
    add(scheduler, "chata")
    assert step(scheduler) == {"bulka": 3, "chata": 3}


def test_a_request_that_lacks_its_lanes_blocks_is_overtaken_but_not_for_ever(monkeypatch):
    monkeypatch.setattr("headway.core.planning.lane_limits.PATIENCE", 2)
    scheduler = scheduler_of(64, Policies(Continuous(9)), replace(BULK, blocks=Share(0, 4)), CHAT)
    add(scheduler, "bulka", prompt=4, most=9)
    step(scheduler)
    add(scheduler, "bulkb", prompt=13, most=1)
    joined = []
    for name in "cdefgh":
        add(scheduler, f"bulk{name}", f"chat{name}", prompt=1, most=1)
        joined += step(scheduler)
        assert scheduler.pool.blocks_of_lane["bulk"] <= 4
    while "bulkb" not in joined:
        joined += step(scheduler)
    names = [name for name in dict.fromkeys(joined) if name.startswith("bulk")]
    assert names[:4] == ["bulka", "bulkc", "bulkd", "bulkb"], "then its blocks are kept for it"
    assert joined.count("chath") == 1


def test_a_request_that_needs_more_blocks_than_its_lane_may_have_is_refused():
    scheduler = scheduler_of(64, Policies(Continuous(9)), replace(BULK, blocks=Share(0, 4)), CHAT)
    events = scheduler.apply([Add(ask("big", 10, 7, lane="bulk"))], 0)
    (event,) = events
    assert event.error == "10 prompt tokens and 7 to generate cannot fit: a request may hold 16"
    assert scheduler.apply([Add(ask("fits", 10, 7, lane="chat"))], 0) == []


# -- no request starves


def flood(scheduler, steps, each=2):
    """Run steps, before each of which timed requests come. Returns the rows of the steps."""
    found = []
    for number in range(steps):
        now = number * 40 * MS
        for i in range(each):
            request = ask(f"f{number}.{i}", (number % 50, i, 7, 7, 7), 3, now, lane="chat")
            scheduler.apply([Add(request)], now)
        found.append(step(scheduler, now))
        if "bulka" not in scheduler.roster.by_id:
            break
    return found


@pytest.mark.parametrize("turn", [1, 3, 8])
@pytest.mark.parametrize("chunk", [Fixed(4), BySlack(least=4, stretch=1)])
def test_in_a_flood_a_kept_sequence_has_a_row_in_every_turn_steps(turn, chunk):
    order = ByDeadline(patience=400 * MS, turn=turn)
    policies = Policies(Continuous(4), order, chunk=chunk, preempt=ByLane(), step_tokens=16)
    policies = replace(policies, defer=WithoutDeadline(), relegate=Hopeless())
    bulk = replace(BULK, slots=Share(least=1), blocks=Share(least=12))
    scheduler = scheduler_of(64, policies, bulk, CHAT)
    add(scheduler, "bulka", prompt=24, most=6)
    seen = ["bulka" in rows for rows in flood(scheduler, 400)]
    (row,) = [row for row in scheduler.ledger.requests if row.id == "bulka"]
    assert row.generated == 6 and row.preemptions == 0
    aged = seen[10:]
    gaps = [len(gap) for gap in "".join(" x"[each] for each in aged).split("x")]
    assert max(gaps) < turn
    assert scheduler.roster.waiting > 10, "or it was no flood"


@pytest.mark.no_cover
@settings(max_examples=40, deadline=None)
@given(
    slots=st.integers(1, 4),
    turn=st.integers(1, 6),
    most=st.integers(1, 4),
    each=st.integers(2, 4),
    prompt=st.integers(1, 5),
    budget=st.sampled_from([Budget(ttft=60 * MS), Budget(e2e=60 * MS)]),
)
def test_in_a_flood_the_oldest_has_its_turn_and_ends(slots, turn, most, each, prompt, budget):
    """The oldest is relegated (with a TTFT) or put behind as the largest work, and slots come free
    at any distance. Once it is older than the patience, at most turn + slots others begin before
    it."""
    order = ByDeadline(patience=400 * MS, turn=turn)
    policies = Policies(Continuous(slots), order, chunk=Fixed(16), preempt=ByLane(), step_tokens=32)
    policies = replace(policies, relegate=Hopeless(), defer=WithoutDeadline())
    scheduler = scheduler_of(64, policies, BULK, CHAT, Lane("late", budget))
    late = [ask(f"late{i}", (40 + i,) * 60, most, 0, lane="late") for i in range(2)]
    scheduler.apply([Add(request) for request in late], 0)
    late0 = scheduler.roster.by_id["late0"]
    for number in range(400):
        now = number * 40 * MS
        names = [f"f{number}.{i}" for i in range(each)]
        asks = [ask(n, (number % 50, int(n[-1])) * prompt, most, now, lane="chat") for n in names]
        scheduler.apply([Add(request) for request in asks], now)
        before = late0.preemptions
        step(scheduler, now)
        assert now < 400 * MS or late0.preemptions == before, "it keeps its slot"
        if not scheduler.roster.by_id.keys() & {"late0", "late1"}:
            break
    rows = {row.id: row for row in scheduler.ledger.requests}
    assert rows.keys() >= {"late0", "late1"}
    at = rows["late0"].first_scheduled
    others = [row for row in rows.values() if 400 * MS < row.first_scheduled < at]
    assert len(others) <= turn + slots


def test_in_a_flood_the_oldest_untimed_request_has_the_next_slot_and_ends():
    order = ByDeadline(patience=400 * MS, turn=5)
    policies = Policies(Continuous(2), order, chunk=Fixed(4), step_tokens=8)
    scheduler = scheduler_of(64, policies)
    add(scheduler, "chata", "chatb", prompt=4, most=2)
    add(scheduler, "bulka", prompt=24, most=6)
    rows = flood(scheduler, 200)
    first = next(i for i, each in enumerate(rows) if "bulka" in each)
    assert 10 <= first <= 10 + 8, "a slot comes free once in so many steps"
    assert rows[-1] and "bulka" not in scheduler.roster.by_id
