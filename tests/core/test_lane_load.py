"""The snapshot of a lane: its running and waiting sequences and what they hold."""

from dataclasses import replace

from headway.core.batch import Output, Want
from headway.core.commands import Add
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from tests.traces import ask, make


def step(scheduler, now):
    batch = scheduler.schedule(now)
    tokens = tuple((9,) if row.want is Want.LAST else () for row in batch.rows)
    scheduler.commit(batch, Output(tokens), now)
    scheduler.check()
    return scheduler.load(now)


def test_each_lane_has_its_own_sequences_blocks_and_wait():
    scheduler = make(8, Policies(join=Continuous(2)), ("bulk", "chat"))
    asked = [
        replace(ask("a", 3, 3), lane="bulk"),
        replace(ask("b", 8, 1), lane="chat"),
        replace(ask("c", 3, 1, arrived=5), lane="chat"),
    ]
    scheduler.apply([Add(each) for each in asked], 5)
    before = scheduler.load(5).lanes
    assert [before[lane].oldest for lane in ("bulk", "chat")] == [0, 0]
    assert all((each.running, each.batch, each.blocks) == (0, 0, 0) for each in before.values())

    first = step(scheduler, 10).lanes  # a and b; b ends in it
    bulk, chat = first["bulk"], first["chat"]
    assert (bulk.running, bulk.batch, bulk.blocks, bulk.oldest) == (1, 1, 1, NEVER)
    assert (chat.running, chat.batch, chat.blocks, chat.oldest) == (0, 1, 0, 5)

    second = step(scheduler, 20)  # a and c
    assert [second.lanes[lane].batch for lane in ("bulk", "chat")] == [1, 1]
    assert second.preemptions == 0


def test_preemptions_are_counted_as_they_happen():
    """Two sequences that fit and then grow; the younger loses its blocks."""
    scheduler = make(3, Policies(join=Continuous(2)))
    scheduler.apply([Add(ask("a", 4, 8)), Add(ask("b", (7,) * 4, 8))], 0)
    while not (load := step(scheduler, 0)).preemptions:
        assert load.running == 2
    lane = load.lanes["default"]
    assert (lane.running, lane.batch, lane.waiting, lane.oldest) == (1, 1, 1, 0)
    assert lane.blocks == load.num_blocks - load.free_blocks
