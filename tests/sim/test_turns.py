"""If more sequences run than fit a step, they take turns and none is left out for ever."""

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.commands import Add, Close
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Static
from headway.core.policies.mix import Alternate, Mixed, PrefillFirst
from headway.core.policies.policies import Policies
from headway.core.request import Finish
from tests.traces import Crowd, ask, make, spy

ROOM = 500  # blocks, so that none is preempted


class Turns:
    """Counts how often others were served since each running sequence was served or joined.

    Under a mix that keeps prompts and decoding apart, steps of the other kind do not count: which
    kind has its turn is the mix's decision. Nor does a step count for a prompt if all running
    sequences could have a token in it: prompts are then computed in the order of joining.
    """

    def __init__(self, scheduler):
        self.scheduler, self.executor = scheduler, spy(ROOM, burst=1)
        self.is_mixed = isinstance(scheduler.settings.policies.mix, Mixed)
        self.passed, self.worst, self.most, self.left_out = {}, 0, 0, 0

    def step(self):
        before = {s.number: s.pending for s in self.scheduler.roster.running.values()}
        all_fit = len(before) <= self.scheduler.settings.policies.step_tokens
        batch = self.scheduler.schedule(0)
        if not batch.rows:
            return False
        served = {row.sequence for row in batch.rows}
        running = self.scheduler.roster.running
        self.most = max(self.most, len(running))
        for number in running:
            passed = self.passed.setdefault(number, {})
            lacks = before.get(number, len(running[number].tokens))
            if number in served:
                passed.clear()
            elif all_fit and lacks > 1:
                continue
            elif self.is_mixed or self.scheduler.prefilled == (lacks > 1):
                self.left_out += 1
                for other in served:
                    passed[other] = passed.get(other, 0) + 1
                self.worst = max(self.worst, *passed.values())
        output = self.executor.collect(self.executor.submit(batch))
        self.scheduler.commit(batch, output, 0)
        self.scheduler.check()
        return True


@st.composite
def crowds(draw):
    most = draw(st.integers(1, 7))
    join = draw(st.sampled_from([Crowd(most), Continuous(most), Static(most)]))
    least = 1 if isinstance(join, Crowd) else most
    policies = Policies(
        join,
        mix=draw(st.sampled_from([Mixed(), Alternate(), PrefillFirst()])),
        chunk=draw(st.sampled_from([Whole(), Fixed(1), Fixed(2), Fixed(5)])),
        step_tokens=draw(st.integers(least, 8)),
    )
    asks = [
        (
            draw(st.integers(0, 12)),
            ask(f"r{i}", (i,) * draw(st.integers(1, 12)), draw(st.integers(1, 9))),
        )
        for i in range(draw(st.integers(1, 12)))
    ]
    return policies, asks


@pytest.mark.no_cover
@settings(deadline=None)
@given(crowds())
def test_between_two_turns_of_a_sequence_no_other_has_more_turns_than_run(crowd):
    policies, asks = crowd
    scheduler = make(ROOM, policies)
    turns = Turns(scheduler)
    for step in range(2_000):
        scheduler.apply([Add(request) for at, request in asks if at == step], 0)
        if step == 12:
            scheduler.apply([Close()], 0)
        if not turns.step() and step >= 12:
            break
    assert scheduler.finished and all(row.generated for row in scheduler.ledger.requests)
    assert turns.worst <= turns.most
    event("some were left out" if turns.left_out else "all fitted")


def decoding(policies, count):
    """A scheduler with `count` sequences that have only their first token."""
    roomy = replace(policies, chunk=Whole(), step_tokens=1_000)
    scheduler = make(ROOM, roomy)
    scheduler.apply([Add(ask(f"r{i}", (i,) * 3, 50)) for i in range(count)], 0)
    turns = Turns(scheduler)
    turns.step()
    scheduler.settings = replace(scheduler.settings, policies=policies)
    return scheduler, turns


def test_five_sequences_share_steps_of_two():
    _, turns = decoding(Policies(Crowd(5), step_tokens=2), 5)
    seen = []
    for _ in range(5):
        turns.step()
        seen.append([row.sequence for row in turns.executor.batches[-1].rows])
    assert seen == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


@pytest.mark.parametrize("chunk", [Fixed(2), Whole()])
def test_a_prompt_gets_its_turn_although_decoding_fills_every_step(chunk):
    scheduler, turns = decoding(Policies(Crowd(5), chunk=chunk, step_tokens=4), 4)
    scheduler.settings = replace(
        scheduler.settings, policies=replace(scheduler.settings.policies, step_tokens=5)
    )
    scheduler.apply([Add(ask("late", (9,) * 8, 1))], 0)
    turns.step()  # the late request joins with the rest of the step
    scheduler.settings = replace(
        scheduler.settings, policies=replace(scheduler.settings.policies, step_tokens=4)
    )
    for _ in range(20):
        turns.step()
    assert [row.id for row in scheduler.ledger.requests] == ["late"]
    assert turns.worst <= 5


def test_a_groups_prompts_are_computed_one_after_the_other():
    """If prompts took turns, all first tokens would come at the end."""
    scheduler = make(ROOM, Policies(Static(3), chunk=Fixed(4), step_tokens=7))
    scheduler.apply([Add(ask(f"r{i}", (i,) * 8, 2)) for i in range(3)], 0)
    turns, seen = Turns(scheduler), []
    for _ in range(6):
        turns.step()
        seen.append(
            [row.sequence for row in turns.executor.batches[-1].rows if len(row.tokens) > 1]
        )
    assert seen == [[0], [0], [1], [1], [2], [2]]


def test_prompts_keep_their_place_during_a_decode_step():
    policies = Policies(Crowd(4), mix=Alternate(), chunk=Fixed(2), step_tokens=2)
    scheduler, turns = decoding(replace(policies, step_tokens=3), 3)
    scheduler.apply([Add(ask("late", (9,) * 8, 1))], 0)
    seen = []
    for _ in range(7):
        turns.step()
        seen.append([row.sequence for row in turns.executor.batches[-1].rows])
        scheduler.settings = replace(scheduler.settings, policies=policies)
    assert seen == [[0, 1, 2], [3], [0, 1], [3], [2, 0], [3], [1, 2]]


def test_a_sequence_that_lacks_a_block_gives_its_turn_to_others():
    """The youngest is first in turn and needs a block, but its own blocks are those to be taken."""
    scheduler = make(5, Policies(Crowd(3), step_tokens=1_000))
    prompts = [(1,) * 4, (2,), (3,) * 8]
    scheduler.apply([Add(ask(f"r{i}", each, 3)) for i, each in enumerate(prompts)], 0)
    turns, seen = Turns(scheduler), []
    turns.step()
    policies = Policies(Crowd(3), step_tokens=2)
    scheduler.settings = replace(scheduler.settings, policies=policies)
    while turns.step():
        seen.append([row.sequence for row in turns.executor.batches[-1].rows])
    assert seen[:2] == [[0, 1], [0, 1]]
    assert [row.preemptions for row in scheduler.ledger.requests] == [0, 0, 1]
    assert {each.finish for each in scheduler.ledger.requests} == {Finish.LENGTH}
