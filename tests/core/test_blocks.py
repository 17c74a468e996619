"""BlockPool under any sequence of calls, and its order of reuse."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headway.core import blocks
from headway.core.blocks import BlockPool, publish, release, reserve
from headway.core.request import Request, Sequence


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

    @rule(sequence=held, upto=st.integers(0, 9))
    def compute(self, sequence, upto):
        if sequence in self.live:
            sequence.computed = max(sequence.computed, min(upto, len(sequence.tokens)))
            if sequence.computed >= sequence.fills:
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
    """Void places are cleared away at once."""

    def __init__(self) -> None:
        super().__init__()
        self._slack, blocks.SLACK = blocks.SLACK, -16

    def teardown(self) -> None:
        blocks.SLACK = self._slack


TestPool, TestTidy = Pool.TestCase, Tidy.TestCase
TestPool.settings = TestTidy.settings = settings(max_examples=60, deadline=None)


def test_void_places_are_no_more_than_the_others_and_a_few():
    """A hot prefix is matched and let go for ever, and nobody else takes a block."""
    pool = BlockPool(8, 2)
    keys = [bytes([n]) for n in range(4)]
    table = pool.allocate(4)
    pool.publish(table, keys)
    for _ in range(200):
        pool.release(table, keys)
        table = pool.acquire(pool.match(keys))
        pool.check([table])
        assert len(pool._cached) <= blocks.SLACK + 8
    pool.release(table, keys)
    assert pool.allocate(8)[4:] == table[::-1], "their order of reuse is the latest one"


def test_a_freed_tail_is_reused_before_its_prefix_and_plain_blocks_before_both():
    pool = BlockPool(4, 2)
    table = pool.allocate(3)
    pool.publish(table[:2], [b"one", b"two"])
    pool.release(table, [b"one", b"two"])  # the third holds nothing that could be matched
    assert table == [1, 2, 3]
    assert pool.allocate(4) == [3, 4, 2, 1]


def test_a_block_that_several_hold_is_free_when_the_last_lets_go():
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
    assert free == [4, 5, 6, 8], "what each had for itself, and with the last what all had"
    assert pool.match([b"one", b"two"]) == [b"one", b"two"]


def test_can_hold_counts_matched_blocks_that_lie_in_the_free_list():
    pool = BlockPool(2, 2)
    table = pool.allocate(1)
    key = b"one"
    pool.publish(table, [key])
    pool.release(table, [key])
    assert pool.num_free == 2
    assert pool.can_hold(pool.match([key]), 1)
    assert not pool.can_hold(pool.match([key]), 2)


def test_the_names_of_blocks_cannot_be_guessed():
    roots = {BlockPool(2, 2, secret).root(salt) for secret in (b"", b"x") for salt in ("", "t")}
    assert len(roots) == 4
