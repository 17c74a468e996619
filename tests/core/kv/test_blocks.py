"""BlockPool under any sequence of calls, and its order of reuse."""

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headway.core.batch import Output
from headway.core.commands import Add
from headway.core.kv import block_table, blocks
from headway.core.kv.block_table import publish, release, reserve
from headway.core.kv.blocks import BlockPool
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings


class Pool(RuleBasedStateMachine):
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(8, 2)
        self.live: list[Sequence] = []

    @rule(
        target=held,
        tokens=st.lists(st.integers(0, 2), min_size=1, max_size=9),
        more=st.integers(0, 4),
        whole=st.booleans(),
    )
    def join(self, tokens, more, whole):
        sequence = Sequence(0, Request("", tuple(tokens), more, 0), list(tokens))
        before = self.pool.num_free
        if not reserve(self.pool, sequence, whole=whole):
            assert not sequence.blocks and self.pool.num_free == before
            return sequence
        assert len(sequence.blocks) == -(-(len(tokens) + more * whole) // 2)
        assert sequence.computed < len(tokens), "the last token is never matched"
        self.live.append(sequence)
        return sequence

    @rule(sequence=held, whole=st.booleans())
    def ask_again(self, sequence, whole):
        """Remembering the last attempt to fit changes no answer."""
        if sequence in self.live:
            return
        known, limit = len(sequence.tokens), sequence.request.limit
        block_table._hash_blocks(self.pool, sequence, (known - 1) // 2)
        matched = self.pool.match(sequence.hashes[: (known - 1) // 2])
        need = -(-(limit if whole else known) // 2) - len(matched)
        fits = self.pool.can_hold(matched, need)
        event(f"it fits: {fits}; it had not: {sequence.misfit != (0, 0, 0)}")
        assert reserve(self.pool, sequence, whole=whole) is fits
        if fits:
            self.live.append(sequence)

    @rule(sequence=held, token=st.integers(0, 2))
    def preempt(self, sequence, token):
        """The sequence waits again, with one more token."""
        if sequence in self.live and len(sequence.tokens) < sequence.request.limit:
            self.live.remove(sequence)
            release(self.pool, sequence)
            sequence.tokens.append(token)

    @rule(sequence=held, upto=st.integers(0, 9))
    def compute(self, sequence, upto):
        if sequence in self.live:
            sequence.computed = max(sequence.computed, min(upto, len(sequence.tokens)))
            if sequence.computed >= sequence.full_at:
                publish(self.pool, sequence)

    @rule(sequence=consumes(held))
    def leave(self, sequence):
        if sequence in self.live:
            self.live.remove(sequence)
            release(self.pool, sequence)

    @invariant()
    def books_balance(self):
        self.pool.check([sequence.blocks for sequence in self.live])


class Tidy(Pool):
    """Stale entries are cleared away at once."""

    def __init__(self) -> None:
        super().__init__()
        self._max_stale, blocks.MAX_STALE = blocks.MAX_STALE, -16

    def teardown(self) -> None:
        blocks.MAX_STALE = self._max_stale


TestPool, TestTidy = map(pytest.mark.no_cover, (Pool.TestCase, Tidy.TestCase))
TestPool.settings = TestTidy.settings = settings(max_examples=60, deadline=None)


def test_stale_entries_of_the_free_list_stay_few():
    """A hot prefix is matched and freed again and again, and no other sequence takes a block."""
    pool = BlockPool(8, 2)
    keys = [bytes([n]) for n in range(4)]
    table = pool.allocate(4)
    pool.publish(table, keys)
    for _ in range(200):
        pool.release(table, keys)
        table = pool.acquire(pool.match(keys))
        pool.check([table])
        assert len(pool._cached) <= blocks.MAX_STALE + 8
    pool.release(table, keys)
    assert pool.allocate(8)[4:] == table[::-1], (
        "they are reused in the order in which they were last freed"
    )


def test_plain_blocks_are_reused_first_then_a_tail_then_its_prefix():
    pool = BlockPool(4, 2)
    table = pool.allocate(3)
    pool.publish(table[:2], [b"one", b"two"])
    pool.release(table, [b"one", b"two"])  # the third holds nothing that could be matched
    assert table == [1, 2, 3]
    assert pool.allocate(4) == [3, 4, 2, 1]


def test_blocks_freed_earlier_are_reused_before_a_victims_blocks():
    pool = BlockPool(5, 2)
    cold, victim = pool.allocate(2), pool.allocate(3)
    pool.publish(cold, [b"c1", b"c2"])
    pool.publish(victim[:2], [b"v1", b"v2"])
    pool.release(cold, [b"c1", b"c2"])
    pool.release(victim, [b"v1", b"v2"])
    left = []
    for _ in range(4):
        pool.allocate(1)
        left.append([name for name in (b"c1", b"c2", b"v1", b"v2") if pool.match([name])])
    assert left == [[b"c1", b"c2", b"v1", b"v2"], [b"c1", b"v1", b"v2"], [b"v1", b"v2"], [b"v1"]]


def test_a_shared_block_is_free_when_its_last_holder_frees_it():
    pool = BlockPool(8, 2)
    first = pool.allocate(2)
    pool.publish(first, [b"one", b"two"])
    others = [pool.acquire([b"one"]) + pool.allocate(1) for _ in range(2)]
    tables = [*others, first]
    named = [[b"one"], [b"one"], [b"one", b"two"]]
    free = [pool.num_free]
    while tables:
        pool.release(tables.pop(), named.pop())
        pool.check(tables)
        free.append(pool.num_free)
    assert free == [4, 5, 6, 8], "each one's own blocks, and with the last the shared ones"
    assert pool.match([b"one", b"two"]) == [b"one", b"two"]


def test_a_tail_is_reused_before_its_prefix_beside_a_shared_block_too():
    pool, keys = BlockPool(3, 2), [b"one", b"two", b"three"]
    table = pool.allocate(3)
    pool.publish(table, keys)
    pool.acquire(keys[:1])
    pool.release(table, keys)
    pool.allocate(1)
    assert pool.match(keys) == keys[:2]


def test_can_hold_counts_matched_blocks_in_the_free_list():
    pool = BlockPool(2, 2)
    table = pool.allocate(1)
    key = b"one"
    pool.publish(table, [key])
    pool.release(table, [key])
    assert pool.num_free == 2
    assert pool.can_hold(pool.match([key]), 1)
    assert not pool.can_hold(pool.match([key]), 2)


def test_block_hashes_depend_on_a_secret_on_the_tenant_and_on_the_adapter():
    pools = [BlockPool(2, 2, secret) for secret in (b"", b"x")]
    named = [(salt, adapter) for salt in ("", "t", "tsql") for adapter in ("", "sql")]
    assert len({pool.root(*each) for pool in pools for each in named}) == 12


def test_a_request_that_does_not_fit_is_not_looked_up_at_each_step(monkeypatch):
    """A cached prefix of 40 blocks was once looked up hash by hash in every step."""
    policies = Policies(Continuous(4), step_tokens=512)
    scheduler, shared = Scheduler(Settings(64, 4, policies=policies)), tuple(range(160))
    looked = []
    match = BlockPool.match
    monkeypatch.setattr(
        BlockPool, "match", lambda pool, keys: looked.append(1) or match(pool, keys)
    )

    def step(*adds):
        scheduler.apply([Add(each) for each in adds], 0)
        batch = scheduler.schedule(0)
        tokens = tuple([(7,) if row.want else () for row in batch.rows])
        scheduler.commit(batch, Output(tokens), 1)
        return len(batch.rows)

    step(Request("first", (*shared, 1), 1, 0))
    step(Request("runs", (500,), 60, 0))
    waiting = [Request(f"w{i}", (*shared, *range(200, 293 + i)), 1, 0) for i in range(3)]
    step(*waiting)
    looked.clear()
    assert [step() for _ in range(50)] == [1] * 50, "three wait while one runs and grows"
    assert len(looked) <= 9, "it was 150"
    while "runs" in scheduler.roster.by_id:
        step()
    assert step() == 1 and scheduler.roster.waiting == 2, "the first fits when no other runs"


@pytest.mark.parametrize("evicted", [False, True])
def test_a_request_that_did_not_fit_fits_when_others_hold_its_prefix(evicted):
    """The request would take four cached blocks from the free list. Then another sequence holds
    them, by a hit or by computing them again, and the request lacks only three."""

    def made(*tokens):
        return Sequence(0, Request("", tokens, 0, 0), list(tokens))

    def computed(sequence):
        sequence.computed = len(sequence.tokens)
        publish(pool, sequence)

    pool, shared = BlockPool(8, 2), tuple(range(8))
    first, other, waits = made(*shared, 9), made(50, 51, 52), made(*shared, *range(20, 26))
    again, all_ = made(*shared, 10), made(*range(60, 72))
    assert reserve(pool, first, whole=False)
    computed(first)
    release(pool, first)
    assert reserve(pool, other, whole=False) and pool.num_free == 6
    assert not reserve(pool, waits, whole=False) and waits.misfit[:2] == (4, 4)
    if evicted:
        assert reserve(pool, all_, whole=False) and not pool.num_free
        release(pool, all_)
    assert reserve(pool, again, whole=False) and again.published == (0 if evicted else 4)
    computed(again)
    assert not reserve(pool, waits, whole=False)
    release(pool, other)
    assert reserve(pool, waits, whole=False) and waits.published == 4
