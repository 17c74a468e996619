"""What the scheduler promises, literally, on small cases."""

from dataclasses import replace

import pytest

from headway.core.batch import Event, Logprob, Output, Want
from headway.core.commands import Add, Cancel, Close, Enough, Refuse, Retune, Stop
from headway.core.lane import Budget, Lane, Share
from headway.core.planning.candidates import FAR, MISFITS
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.core.sampling import Sampling
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate
from tests.traces import BLOCK, COST, MS, Crowd, ask, make, spy


def run(scheduler, batch, now=0):
    """Commit a batch in which every row that wants a token samples 9."""
    tokens = tuple((9,) if row.want is Want.LAST else () for row in batch.rows)
    return scheduler.commit(batch, Output(tokens), now)


def shape(batch):
    return [(row.sequence, row.start, len(row.tokens)) for row in batch.rows]


def test_a_row_in_steady_decoding_is_a_few_ints():
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 3, 9))], 0)
    run(scheduler, scheduler.schedule(0))
    batch = scheduler.schedule(0)
    assert tuple(batch.rows[0]) == (0, 3, (9,), (), Want.LAST)
    assert (batch.begun, batch.ended, batch.waste) == ((), (), 0)


def test_a_batch_names_new_blocks_once_and_ended_sequences_in_the_next():
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 4, 2)), Add(ask("b", 4, 3))], 0)
    first = scheduler.schedule(0)
    assert [row.blocks for row in first.rows] == [(1,), (2,)]
    run(scheduler, first)
    second = scheduler.schedule(0)
    assert [row.blocks for row in second.rows] == [(3,), (4,)]
    assert run(scheduler, second)[0] == Event("a", (9,), Finish.LENGTH)
    third = scheduler.schedule(0)
    assert third.ended == (0,) and [row.blocks for row in third.rows] == [()]


def test_a_step_goes_to_decodes_first_then_prompts_then_those_that_join():
    scheduler = make(32, Policies(Continuous(4), chunk=Fixed(6), step_tokens=7))
    scheduler.apply([Add(ask("a", 3, 9))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Add(ask("b", (5,) * 8, 9)), Add(ask("c", (7,) * 8, 9))], 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 3, 1), (1, 0, 6)]
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 4, 1), (1, 6, 2), (2, 0, 4)]


@pytest.mark.parametrize(
    "mix, kinds", [(Mixed(), "BBBB"), (PrefillFirst(), "PPPB"), (Alternate(), "PDPD")]
)
def test_each_mix_composes_its_steps(mix, kinds):
    scheduler = make(32, Policies(mix=mix, chunk=Fixed(4)))
    scheduler.apply([Add(ask("a", 3, 9))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.prefilled = False
    scheduler.apply([Add(ask("b", (5,) * 12, 9))], 0)
    seen = ""
    for _ in range(4):
        batch = scheduler.schedule(0)
        rows = {row.sequence for row in batch.rows}
        seen += "B" if rows == {0, 1} else "P" if rows == {1} else "D"
        run(scheduler, batch)
    assert seen == kinds


def test_a_whole_prompt_may_overrun_a_step_but_not_start_in_a_full_one():
    scheduler = make(32, Policies(Continuous(4), chunk=Whole(), step_tokens=5))
    scheduler.apply([Add(ask("a", 9, 2)), Add(ask("b", (5,) * 3, 2))], 0)
    assert shape(scheduler.schedule(0)) == [(0, 0, 9)]


def test_a_head_that_does_not_fit_does_not_block_a_request_that_does():
    scheduler = make(6)
    scheduler.apply([Add(ask("a", 12, 4))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Add(ask("big", (5,) * 16, 4)), Add(ask("small", (6,) * 4, 2))], 0)
    assert [row.sequence for row in scheduler.schedule(0).rows] == [0, 2]


@pytest.mark.parametrize("more, start", [(4, 16), (6, 12)])
def test_a_preempted_sequence_loses_only_the_blocks_that_were_needed(more, start):
    scheduler = make(7)
    scheduler.apply([Add(ask("old", 8, more)), Add(ask("young", (5,) * 16, 8))], 0)
    run(scheduler, scheduler.schedule(0))  # 2 and 4 blocks are held, 1 is free
    young = scheduler.roster.running[1]
    batch = scheduler.schedule(0)
    assert shape(batch) == [(0, 8, 1)], "old takes the free one, then young has none"
    assert batch.ended == (1,)
    while {row.sequence for row in batch.rows} == {0}:
        run(scheduler, batch)
        batch = scheduler.schedule(0)
    assert shape(batch) == [(1, start, 17 - start)], "old took one of young's blocks, or a free one"
    assert [begun.sequence for begun in batch.begun] == [1]
    assert young.recomputed == 16 - start, "only that block is computed again"
    assert len(batch.rows[0].blocks) == 5, "the whole table, as the executor had dropped it"


def test_a_preempted_prompt_recomputes_nothing_that_another_computed_meanwhile():
    """The preempted prompt had 4 of 13 tokens computed, and then finds 12 of them."""
    policies = Policies(Continuous(1), Priority(), chunk=Fixed(4))
    scheduler = make(16, policies, ("slow", "fast"))
    scheduler.apply([Add(ask("a", 13, 1, lane="slow"))], 0)
    run(scheduler, scheduler.schedule(0))
    (a,) = scheduler.roster.running.values()
    scheduler.roster.preempt(a)
    scheduler.apply([Add(ask("b", 13, 1, lane="fast"))], 0)
    while scheduler.roster.by_id:
        run(scheduler, scheduler.schedule(0))
    rows = {row.id: row for row in scheduler.ledger.requests}
    assert (rows["a"].preemptions, rows["a"].recomputed) == (1, 0)


def test_the_last_victim_is_spared_while_another_can_be_taken():
    scheduler = make(6)
    prompts = {"a": 2, "b": 6, "c": 6, "d": 6}  # and the number of tokens each generates
    scheduler.apply([Add(ask(id, (i,) * 4, prompts[id])) for i, id in enumerate("abcd")], 0)
    victims = []
    while (batch := scheduler.schedule(0)).rows:
        waiting = {sequence.number for sequence in scheduler.roster.lines["default"].waiting}
        victims += [number for number in batch.ended if number in waiting]
        run(scheduler, batch)
    assert victims == [3, 2]


def test_a_step_that_preempts_admits_nobody():
    scheduler = make(4)
    scheduler.apply([Add(ask("a", 8, 8)), Add(ask("b", (5,) * 7, 9))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Add(ask("c", (6,), 1))], 0)
    batch = scheduler.schedule(0)
    assert shape(batch) == [(0, 8, 1)] and batch.ended == (1,)
    assert scheduler.pool.num_free == 1, "there was room for c"
    scheduler.check()


def test_cancel_and_stop_are_idempotent_and_stop_discards():
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 4, 9)), Add(ask("b", 4, 9))], 0)
    for _ in range(3):
        run(scheduler, scheduler.schedule(0))
    events = scheduler.apply([Stop("a", keep=1), Cancel("b"), Cancel("b"), Stop("x", 0)], 7)
    assert events == [Event("a", (), Finish.STOP), Event("b", (), Finish.CANCELLED)]
    row = scheduler.ledger.requests[0]
    assert (row.generated, row.discarded, row.finished) == (1, 2, 7)
    assert scheduler.pool.num_free == 8
    scheduler.check()


@pytest.mark.parametrize("keep, last", [(9, 40), (5, 40), (4, 32), (2, 17), (1, 10), (0, 10)])
def test_tokens_that_a_stop_discards_do_not_count_in_tpot(keep, last):
    """Five tokens come at 10, 14, 25, 38 and 40."""
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 4, 9))], 0)
    for now in (10, 14, 25, 38, 40):
        batch = scheduler.schedule(now)
        scheduler.commit(batch, Output(((7,),)), now)
    scheduler.apply([Stop("a", keep)], 50)
    row = scheduler.ledger.requests[0]
    assert (row.first_token, row.last_token, row.finished) == (10, last, 50)
    assert row.generated < 2 or row.tpot == 7, "the mean of all five"
    scheduler.check()


@pytest.mark.parametrize(
    "end, finish", [(Cancel("a"), Finish.CANCELLED), (Stop("a", 0), Finish.STOP)]
)
def test_blocks_of_a_step_in_flight_are_not_freed(end, finish):
    scheduler = make(8, Policies(chunk=Fixed(2)))
    scheduler.apply([Add(ask("a", 4, 9))], 0)
    first, second = scheduler.schedule(0), scheduler.schedule(0)
    assert scheduler.apply([end], 5) == [Event("a", (), finish)]
    for batch, free, now in ((first, 7, 10), (second, 8, 15)):
        assert scheduler.pool.num_free == 7
        scheduler.check()
        assert run(scheduler, batch, now) == []
        assert scheduler.pool.num_free == free
    assert scheduler.ledger.wasted == 15
    scheduler.check()


def test_an_exclusive_group_computes_its_waste_and_counts_it_exactly():
    scheduler, executor = make(32, Policies(join=Static(3))), spy(32)
    requests = [ask("a", 5, 1), ask("b", (5,) * 3, 2), ask("c", (6,) * 3, 4)]
    late = ask("late", 1, 1, arrived=1)
    events = simulate(scheduler, arrivals([*requests, late]), COST, executor)
    group, alone = executor.batches[:4], executor.batches[4:]
    assert [(batch.width, len(batch.rows), batch.held) for batch in group] == [
        (5, 3, 0),  # padded: 2 + 2
        (1, 2, 1),  # a is done and its slot is held
        (1, 1, 2),
        (1, 1, 2),
    ]
    assert [batch.waste for batch in group] == [4, 1, 2, 2]
    assert [(batch.width, len(batch.rows), batch.held) for batch in alone] == [(1, 1, 0)]
    wasted = sum(row.waste_tokens for row in scheduler.ledger.steps)
    tokens = sum(row.tokens for row in scheduler.ledger.steps)
    assert executor.executor.computed == tokens + wasted == 16 + 9
    first = next(event for event in events if event.finish)
    assert first.id == "a" and scheduler.ledger.requests[0].finished < 30 * MS
    assert [step.useful for step in scheduler.ledger.steps][:2] == [11 / 15, 2 / 3]


def test_an_exclusive_group_reserves_all_its_blocks_and_starts_with_the_requests_that_fit():
    scheduler = make(6, Policies(join=Static(2)))
    scheduler.apply([Add(ask("a", 5, 15)), Add(ask("b", (5,) * 2, 2)), Close()], 0)
    batch = scheduler.schedule(0)
    assert [len(row.blocks) for row in batch.rows] == [5, 1]
    scheduler = make(5, Policies(join=Static(2)))
    scheduler.apply([Add(ask("a", 5, 15)), Add(ask("b", (5,) * 2, 2)), Close()], 0)
    batch = scheduler.schedule(0)
    assert shape(batch) == [(0, 0, 5)] and batch.waste == 0


def test_a_group_starts_whole_even_if_a_step_cannot_hold_all_its_prompts():
    scheduler = make(32, Policies(join=Static(2), chunk=Fixed(4)))
    scheduler.apply([Add(ask("a", 4, 3)), Add(ask("b", (5,) * 5, 3)), Add(ask("c", 4, 3))], 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert (shape(batch), batch.held, len(scheduler.roster.running)) == ([(0, 0, 4)], 0, 2)
    batch = scheduler.schedule(0)
    assert (shape(batch), batch.width, batch.waste) == ([(0, 4, 1), (1, 0, 4)], 4, 3)


def test_only_computed_blocks_can_be_shared():
    scheduler = make(32, Policies(chunk=Fixed(6)))
    scheduler.apply([Add(ask("a", 10, 1)), Add(ask("b", 10, 1))], 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 0, 6)]
    assert shape(scheduler.schedule(0)) == [(0, 6, 4), (1, 4, 2)], "one full block, not two"


def test_static_waits_for_a_full_group_until_the_engine_closes():
    scheduler = make(8, Policies(join=Static(2)))
    scheduler.apply([Add(ask("a", 3, 1))], 0)
    assert not scheduler.schedule(0).rows
    scheduler.apply([Close()], 0)
    assert shape(scheduler.schedule(0)) == [(0, 0, 3)]


def test_a_group_need_not_be_full_if_no_more_requests_will_come():
    scheduler = make(16, Policies(join=Static(2)))
    scheduler.apply([*[Add(ask(id, 2, 1)) for id in "abc"], Enough()], 0)
    assert len(run(scheduler, scheduler.schedule(0))) == 2
    assert len(run(scheduler, scheduler.schedule(0))) == 1, "and so does the last"
    scheduler.apply([Add(ask("d", 2, 1))], 0)
    assert not scheduler.schedule(0).rows, "a request has come since, so more may come"
    scheduler.apply([Enough()], 0)
    assert len(scheduler.schedule(0).rows) == 1 and not scheduler.load(0).closing


def test_a_request_for_0_tokens_is_legal():
    scheduler = make(8, Policies(chunk=Fixed(2)))
    scheduler.apply([Add(ask("a", 3, 0))], 0)
    assert run(scheduler, scheduler.schedule(0)) == []
    batch = scheduler.schedule(0)
    assert batch.rows[0].want is Want.NOTHING
    assert run(scheduler, batch) == [Event("a", (), Finish.COMPUTED)]
    scheduler.apply([Add(ask("b", 3, 0))], 0)
    first, second = scheduler.schedule(0), scheduler.schedule(0)
    assert run(scheduler, first) == [], "its last tokens are still in flight"
    assert run(scheduler, second) == [Event("b", (), Finish.COMPUTED)]


def test_a_row_may_give_several_tokens_or_an_error():
    scheduler = make(8, Policies(join=Continuous(2)))
    adds = [Add(ask("a", 3, 9, sampling=Sampling(stop_tokens=frozenset({8})))), Add(ask("b", 2, 9))]
    scheduler.apply(adds, 0)
    output = Output(((7, 8, 9), ()), errors={1: "no such adapter"})
    assert scheduler.commit(scheduler.schedule(0), output, 1) == [
        Event("a", (7, 8), Finish.STOP),
        Event("b", (), Finish.ERROR, "no such adapter"),
    ]
    assert scheduler.ledger.requests[0].discarded == 1 and scheduler.pool.num_free == 8
    scheduler.apply([Add(ask("c", 3, 1))], 1)
    events = scheduler.commit(scheduler.schedule(1), Output(((7, 8, 9),)), 2)
    assert events == [Event("c", (7,), Finish.LENGTH)]
    assert scheduler.ledger.requests[2].discarded == 2 and scheduler.pool.num_free == 8


def test_apply_checks_the_hard_limits_again():
    scheduler = make(2)
    (event,) = scheduler.apply([Add(ask("a", 5, 4))], 0)
    assert event.finish is Finish.REFUSED and event.error.startswith("5 prompt tokens and 4 to")
    (event,) = scheduler.apply([Add(ask("b", 1, 1, lane="nowhere"))], 0)
    assert event.finish is Finish.REFUSED
    assert [row.good for row in scheduler.ledger.requests] == [False, False]


def test_a_request_refused_at_admission_leaves_only_a_ledger_row():
    lane = Lane("chat", Budget(ttft=7))
    scheduler = Scheduler(Settings(8, BLOCK, (lane,)))
    before = scheduler.load(5)
    assert scheduler.apply([Refuse(ask("a", 3, 2, lane="chat", arrived=4))], 5) == []
    assert scheduler.load(5) == before and not scheduler.schedule(5).rows
    (row,) = scheduler.ledger.requests
    assert (row.id, row.finish, row.arrived, row.finished) == ("a", Finish.REFUSED, 4, 5)
    assert row.budget == lane.budget and not row.good
    scheduler.check()


def test_requests_with_different_salts_do_not_share_a_prefix():
    for salt, cached in (("x", 4), ("y", 0)):
        scheduler = make(16)
        requests = [ask("a", 8, 1, salt="x"), ask("b", 8, 1, arrived=MS, salt=salt)]
        simulate(scheduler, arrivals(requests), COST)
        assert scheduler.ledger.requests[1].cached == cached


def test_blocks_are_kept_for_a_head_that_was_overtaken_too_often(
    monkeypatch,
):
    monkeypatch.setattr("headway.core.planning.candidates.PATIENCE", 3)
    scheduler = make(4)
    scheduler.apply([Add(ask("long", 4, 12))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Add(ask("big", (5,) * 13, 1))], 0)
    joined = []
    for i in range(6):  # one small request after another; each would fit beside "long"
        scheduler.apply([Add(ask(f"s{i}", (6 + i,) * 3, 1))], 0)
        batch = scheduler.schedule(0)
        joined += [begun.sequence for begun in batch.begun]
        run(scheduler, batch)
    assert joined == [2, 3, 4], "three overtake big, and from then on free blocks are kept for it"
    while 1 not in joined:
        batch = scheduler.schedule(0)
        joined += [begun.sequence for begun in batch.begun]
        run(scheduler, batch)
    assert joined == [2, 3, 4, 1], "big starts as soon as long has ended"
    scheduler.check()


@pytest.mark.parametrize("misfits, joins", [(MISFITS, 1), (MISFITS + FAR - 1, 1), (600, 0)])
def test_a_request_that_fits_joins_behind_a_bounded_number_of_misfits(misfits, joins):
    scheduler = make(4)
    scheduler.apply([Add(ask("long", 4, 12))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Add(ask(f"big{i}", (5,) * 13, 1)) for i in range(misfits)], 0)
    scheduler.apply([Add(ask("small", (6,) * 3, 1))], 0)
    assert [row.sequence for row in scheduler.schedule(0).rows] == [0, misfits + 1][: 1 + joins]


def test_decodes_count_against_the_step_and_a_victims_tokens_are_given_back():
    scheduler = make(7, Policies(Continuous(4), chunk=Whole(), step_tokens=6))
    scheduler.apply([Add(ask("a", 4, 9)), Add(ask("b", (5,) * 2, 9))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Add(ask("c", (6,) * 3, 9)), Add(ask("d", (7,) * 3, 9))], 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 4, 1), (1, 2, 1), (2, 0, 3), (3, 0, 3)], "d overruns by two"
    policies = Policies(Continuous(4), chunk=Fixed(9), step_tokens=6)
    scheduler = make(7, policies)
    scheduler.apply([Add(ask("a", 4, 9)), Add(ask("b", (5,) * 8, 9))], 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 0, 4), (1, 0, 2)]
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 4, 1), (1, 2, 5)], "six in all, including one of a"


def test_a_block_can_be_shared_as_soon_as_it_is_full():
    scheduler = make(8, Policies(chunk=Fixed(4)))
    scheduler.apply([Add(ask("a", 4, 3))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Add(ask("b", 5, 1))], 0)
    assert shape(scheduler.schedule(0)) == [(0, 4, 1), (1, 4, 1)], "four tokens fill a block"


def test_a_group_is_padded_up_to_its_bucket_and_a_single_token_is_not():
    scheduler = make(32, Policies(join=Static(2, buckets=(4, 8))))
    scheduler.apply([Add(ask("a", 5, 2)), Add(ask("b", (5,) * 3, 1))], 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert (batch.width, batch.padding, batch.waste) == (8, 3 + 5, 8)
    run(scheduler, batch := scheduler.schedule(0))
    assert (batch.width, batch.held, batch.padding, batch.waste) == (1, 1, 0, 1)
    step = scheduler.ledger.steps[0]
    assert (step.padding_tokens, step.held_tokens, step.waste_tokens) == (8, 0, 8)
    step = scheduler.ledger.steps[1]
    assert (step.padding_tokens, step.held_tokens, step.waste_tokens) == (0, 1, 1)
    scheduler.apply([Add(ask("c", (7,) * 9, 1)), Add(ask("d", (8,), 1))], 0)
    assert scheduler.schedule(0).width == 9, "longer than every bucket: padded to the longest"


def padded(join, lengths):
    """Tokens of padding, and all computed tokens, when each prompt has one answer token."""
    scheduler = make(512, Policies(join, step_tokens=10_000))
    scheduler.apply([Add(ask(f"r{n}", (n,) * n, 1)) for n in lengths] + [Close()], 0)
    while not scheduler.finished:
        run(scheduler, scheduler.schedule(0))
    steps = scheduler.ledger.steps
    padding = sum(step.padding_tokens for step in steps)
    return padding, padding + sum(step.tokens for step in steps)


def test_a_length_class_is_padded_to_its_longest_or_up_to_its_bound():
    lengths, bounds = (32, 64, 128, 256, 512), (64, 128, 256, 512)
    assert padded(Static(5), lengths) == (1_568, 2_560), "61.25 %"
    assert padded(LengthClasses(5, bounds, 0, pad_to_bound=True), lengths) == (32, 1_024), "3.1 %"
    for pad, widths in ((False, 60 + 60 + 100), (True, 64 + 64 + 128)):
        join = LengthClasses(5, bounds, 0, pad_to_bound=pad)
        assert padded(join, (60, 33, 100)) == (widths - 193, widths)
    join = LengthClasses(5, (64,), 0, pad_to_bound=True)
    assert padded(join, (100, 90)) == (10, 200), "beyond the last bound: to the longest"


def test_no_request_of_another_length_class_takes_the_place_of_a_misfit():
    scheduler = make(6, Policies(LengthClasses(2, (4,), 0)))
    adds = ask("a", 3, 9), ask("b", (5,) * 3, 13), ask("c", (6,) * 5, 1)
    scheduler.apply(map(Add, adds), 0)
    assert shape(scheduler.schedule(0)) == [(0, 0, 3)], "c would fit"


def test_overdue_requests_join_a_group_before_those_first_in_order():
    windows = {"chat": 2 * MS}
    policies = Policies(join=Dynamic(2, 100 * MS, windows))
    scheduler = make(32, policies, ("bulk", "chat"))
    adds = [ask(f"b{i}", (i,) * 3, 1, arrived=i, lane="bulk") for i in range(2)]
    scheduler.apply([Add(adds[0]), Add(ask("c", (9,) * 3, 1, arrived=5, lane="chat"))], 5)
    assert scheduler.schedule(5 + MS).rows, "two wait: the group is full and none is due"
    scheduler = make(32, policies, ("bulk", "chat"))
    late = ask("c", (9,) * 3, 1, arrived=5, lane="chat")
    scheduler.apply([*map(Add, adds), Add(late)], 5)
    assert [row.sequence for row in scheduler.schedule(5 + 2 * MS).rows] == [2, 0]
    for order, members in ((FirstCome(), [0, 1]), (Priority(), [2, 0])):  # all are overdue
        scheduler = make(32, replace(policies, order=order), ("bulk", "chat"))
        scheduler.apply([*map(Add, adds), Add(late)], 5)
        rows = scheduler.schedule(500 * MS).rows
        assert [row.sequence for row in rows] == members, "among the due, the order decides"


def test_logprobs_come_with_their_tokens():
    scheduler = make(8)
    stops = Sampling(stop_tokens=frozenset({8}), logprobs=1)
    scheduler.apply([Add(ask("a", 3, 9, sampling=stops))], 0)
    said = tuple(Logprob(-float(i), ((i, -float(i)),)) for i in range(3))
    output = Output(((7, 8, 9),), {0: said})
    (event,) = scheduler.commit(scheduler.schedule(0), output, 1)
    assert event == Event("a", (7, 8), Finish.STOP, "", said[:2])


def test_a_request_longer_than_the_context_is_refused():
    scheduler = Scheduler(Settings(64, BLOCK, context=8))
    (event,) = scheduler.apply([Add(ask("a", 5, 4))], 0)
    assert event.error == "5 prompt tokens and 4 to generate cannot fit: a request may hold 8"


def test_a_group_answered_together_gives_no_tokens_before_its_end():
    scheduler = make(32, Policies(join=Static(3, together=True)))
    asks = [ask("a", 3, 1), ask("b", (5,) * 3, 3), ask("c", (6,) * 3, 0), ask("d", (7,) * 3, 2)]
    scheduler.apply([*map(Add, asks), Close()], 0)
    assert [run(scheduler, scheduler.schedule(t), t + 10) for t in (0, 10)] == [[], []]
    scheduler.check()
    events = run(scheduler, scheduler.schedule(20), 30)
    assert [(e.id, e.tokens, e.finish) for e in events] == [
        ("a", (9,), Finish.LENGTH),
        ("b", (9,), Finish.NOT_YET),
        ("c", (), Finish.COMPUTED),
        ("b", (9,), Finish.NOT_YET),
        ("b", (9,), Finish.LENGTH),
    ]
    rows = {row.id: row for row in scheduler.ledger.requests}
    assert (rows["a"].first_token, rows["a"].finished, rows["a"].ttft) == (30, 30, 30)
    assert (rows["c"].first_token, rows["c"].finished) == (NEVER, 30)
    assert run(scheduler, scheduler.schedule(30), 40) == []
    assert [e.tokens for e in run(scheduler, scheduler.schedule(40), 50)] == [(9,), (9,)]
    assert scheduler.finished
    scheduler.check()


def test_a_finished_member_of_a_group_answered_together_can_still_be_cancelled():
    scheduler = make(32, Policies(join=Static(2, together=True)))
    scheduler.apply([Add(ask("a", 3, 1)), Add(ask("b", (5,) * 3, 3))], 0)
    assert run(scheduler, scheduler.schedule(0), 10) == []
    assert scheduler.apply([Cancel("a")], 11) == [Event("a", (), Finish.CANCELLED)]
    scheduler.check()
    events = scheduler.apply([Cancel("b")], 12)
    assert events == [Event("b", (), Finish.CANCELLED)], (
        "a token that was not given out is lost with it"
    )
    scheduler.check()
    assert scheduler.pool.num_free == 32


def test_a_follower_waits_for_its_leaders_first_token_and_shares_its_blocks():
    scheduler = make(32, Policies(chunk=Fixed(8)))
    adds = [Add(ask(f"c{i}", 10, 3, follows="c0" if i else "")) for i in range(3)]
    scheduler.apply(adds, 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 0, 8)], "others could join but wait"
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 8, 2)]
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(0, 10, 1), (1, 8, 2), (2, 8, 2)], "two full blocks are shared"
    assert batch.rows[1].blocks[:2] == batch.rows[2].blocks[:2]


@pytest.mark.parametrize("end", [Cancel("a"), Stop("a", 0)])
def test_a_follower_whose_leader_has_ended_starts_by_itself(end):
    scheduler = make(8)
    scheduler.apply([Add(ask("a", 6, 3)), Add(ask("b", 6, 3, follows="a")), end], 0)
    assert shape(scheduler.schedule(0)) == [(1, 0, 6)]
    scheduler.apply([Add(ask("c", 6, 3, follows="gone"))], 0)
    assert 2 in [row.sequence for row in scheduler.schedule(0).rows]


@pytest.mark.parametrize(
    "began, token, until", [(10, NEVER, 40), (10, 30, 20), (25, 30, 25), (10, 50, 20)]
)
def test_a_follower_waits_until_its_leader_starts_but_not_before_it_came(began, token, until):
    """The follower came at 20 and started at 40. A leader without a token has computed nothing."""
    leader = Sequence(0, ask("a", 3, 3), [1], first_scheduled=began, first_token=token)
    follower = Sequence(1, ask("b", 3, 3, arrived=20), [1], leader, first_scheduled=40)
    assert follower.waited_until == until


def test_prompt_logprobs_bypass_the_cache_and_are_given_once():
    scheduler = make(7, Policies(chunk=Fixed(4)))
    scheduler.apply([Add(ask("a", 6, 1))], 0)
    run(scheduler, scheduler.schedule(0))
    run(scheduler, scheduler.schedule(0))
    wants = Sampling(prompt_logprobs=0)
    scheduler.apply([Add(ask("b", 6, 2, sampling=wants))], 0)
    batch = scheduler.schedule(0)
    assert (shape(batch), batch.rows[0].want) == ([(1, 0, 4)], Want.PROMPT)
    assert batch.begun[0].tokens == tuple(range(6)), "the executor must know what comes next"
    said = tuple(Logprob(-float(i)) for i in range(1, 6))
    events = scheduler.commit(batch, Output(((),), prompt_logprobs={0: said[:4]}), 0)
    assert events == [Event("b", prompt_logprobs=said[:4])]
    batch = scheduler.schedule(0)
    assert batch.rows[0].want == Want.PROMPT | Want.LAST
    events = scheduler.commit(batch, Output(((9,),), prompt_logprobs={0: said[4:]}), 0)
    assert events == [Event("b", (9,), prompt_logprobs=said[4:])]
    assert scheduler.schedule(0).rows[0].want is Want.LAST


def test_shortest_first_orders_by_prompt_and_max_tokens():
    scheduler = make(32, Policies(join=Continuous(2), order=ShortestFirst()))
    sizes = {"long": (9, 9), "short": (3, 2), "same": (2, 3), "shorter": (2, 2)}
    adds = [ask(id, (i,) * n, most) for i, (id, (n, most)) in enumerate(sizes.items())]
    scheduler.apply(map(Add, adds), 0)
    assert [row.sequence for row in scheduler.schedule(0).rows] == [3, 1]


def test_a_group_member_that_was_in_no_step_yet_can_be_cancelled():
    scheduler = make(32, Policies(join=Static(2), chunk=Fixed(4)))
    scheduler.apply([Add(ask("a", 8, 3)), Add(ask("b", (5,) * 5, 3))], 0)
    run(scheduler, scheduler.schedule(0))
    scheduler.apply([Cancel("b")], 0)
    scheduler.check()
    assert scheduler.schedule(0).ended == (), "the executor has never heard of b"


def test_blocks_of_a_failed_row_are_never_shared():
    scheduler = make(16)
    scheduler.apply([Add(ask("a", 9, 2))], 0)
    failed = Output(((),), errors={0: "not finite"})
    (event,) = scheduler.commit(scheduler.schedule(0), failed, 0)
    assert event.finish is Finish.ERROR
    scheduler.apply([Add(ask("b", 9, 2))], 0)
    assert shape(scheduler.schedule(0)) == [(1, 0, 9)], "no block of a"


def test_a_victims_tokens_of_the_step_go_to_the_others():
    policies = Policies(Continuous(4), chunk=Fixed(12), step_tokens=12)
    scheduler = make(4, policies)
    asks = [ask("a", 4, 9), ask("c", (5,) * 5, 9), ask("b", (6,) * 3, 9)]
    scheduler.apply(map(Add, asks), 0)
    several = Output(((7, 8, 9), (7, 8, 9), (9,)))  # two of them have several tokens accepted
    scheduler.commit(scheduler.schedule(0), several, 0)
    scheduler.settings = replace(scheduler.settings, policies=replace(policies, step_tokens=5))
    batch = scheduler.schedule(0)
    assert batch.ended == (2,), "a needs a block, and b, the youngest, had a token in this step"
    assert shape(batch) == [(0, 4, 3), (1, 5, 2)], "c gets that token"
    scheduler.check()


@pytest.mark.parametrize("tokens, most", [(6, NEVER), (19, 6)], ids=["the step", "its lane"])
def test_a_next_token_that_is_lost_to_another_next_token_leaves_no_room_for_one_more(tokens, most):
    """The youngest comes first and has a token; then the second needs a block. A lane may have six
    tokens of a step, or the step has no more."""
    policies = Policies(Continuous(4), ShortestFirst(), chunk=Fixed(19), step_tokens=19)
    scheduler = make(10, policies)
    asks = [ask("long", 30, 9), ask("needy", (5,) * 4, 9), ask("young", (6,) * 2, 9)]
    scheduler.apply(map(Add, asks), 0)
    run(scheduler, batch := scheduler.schedule(0))
    assert shape(batch) == [(2, 0, 2), (1, 0, 4), (0, 0, 13)]
    lane = replace(scheduler.settings.lanes[0], step_tokens=Share(0, most))
    scheduler.apply([Retune(1, replace(policies, step_tokens=tokens), (lane,))], 0)
    batch = scheduler.schedule(0)
    assert batch.ended == (2,) and shape(batch) == [(1, 4, 1), (0, 13, 5)]


def test_victims_are_found_without_rescanning_all_running_sequences():
    """The oldest was once searched among all running sequences for each of 32 victims."""

    class Looked(dict):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return super().__iter__()

    scheduler = make(64, Policies(Continuous(64), chunk=Fixed(256), step_tokens=256))
    # Each has filled its only block and needs another one, but none is free.
    scheduler.apply([Add(ask(f"r{i}", (i,) * BLOCK, 9)) for i in range(64)], 0)
    run(scheduler, scheduler.schedule(0))
    running = scheduler.roster.running = Looked(scheduler.roster.running)
    batch = scheduler.schedule(0)
    preempted = scheduler.roster.preemptions
    assert preempted == 32 and 0 in {row.sequence for row in batch.rows}
    assert running.looks <= 1
    scheduler.check()


def test_the_oldest_is_not_a_victim_even_if_it_was_served_last():
    """Sequences left out of a step come first in the next, so the oldest is not always first."""

    class OldestFirst:
        def victims(self, view):
            return iter(sorted(view.running, key=lambda each: each.number))

    scheduler = make(4, Policies(Crowd(3)))
    scheduler.apply([Add(ask(f"r{i}", (i,) * 3, 9)) for i in range(3)], 0)
    run(scheduler, scheduler.schedule(0))
    policies = Policies(Crowd(3), preempt=OldestFirst(), step_tokens=2)
    scheduler.settings = replace(scheduler.settings, policies=policies)
    firsts = []
    for _ in range(6):
        firsts.append(next(iter(scheduler.roster.running)))
        run(scheduler, scheduler.schedule(0))
        assert 0 in scheduler.roster.running
    assert set(firsts) > {0} and scheduler.roster.preemptions
