"""The pool of KV blocks (BlockPool): which are in use, which are free, which can be matched again.

Paged KV memory is vLLM's PagedAttention (SOSP 2023). Finding a full block by a hash that is chained
over all tokens before it is vLLM's automatic prefix caching.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from collections.abc import Sequence as Seq
from hashlib import blake2b

from headway.errors import SettingError

SCRATCH = 0  # never handed out: padding and held slots write there
MAX_STALE = 64  # this many more stale queue entries than live ones are tolerated


class BlockPool:
    """Blocks 1 to num_blocks. A block is in use or free. A free one may still be cached.

    free, in order of reuse:   | empty, last freed first | cached, least recently freed first |

    Publishing a block gives it a hash. A match puts a cached block back in use with its contents.
    So a preempted sequence loses only the blocks that others needed: its full blocks queue here
    behind those freed earlier, and its last block is reused first. Blocks are looked up by hash, in
    use or not, so most calls are a single operation on many blocks.
    """

    def __init__(self, num_blocks: int, block_size: int, secret: bytes = b"") -> None:
        if num_blocks < 1 or block_size < 1:
            raise SettingError(
                f"a pool needs 1 block of 1 token or more, not {num_blocks} of {block_size}"
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._secret = secret  # a client without it cannot compute the hash of another's block
        self.blocks_of_lane = Counter[str]()  # a shared block counts once for each sequence
        self._empty = list(range(num_blocks, 0, -1))  # a stack
        # Hashes of the cached blocks. An entry is stale once its block is in use again: it stays in
        # the queue and is skipped later, because a deque is slow to delete from the middle.
        self._cached: deque[bytes] = deque()
        self._stale_of: Counter[bytes] = Counter()  # stale entries by hash: its oldest entries
        self._num_stale = 0
        self._block_of: dict[bytes, int] = {}  # by hash, in use or cached
        self._in_use: set[int] = set()
        self._sharers: dict[int, int] = {}  # users beyond the first, by block; shared blocks only
        self._taken = 0  # cached blocks matched or reused so far

    @property
    def num_free(self) -> int:
        """Free blocks, cached ones included."""
        return len(self._empty) + len(self._cached) - self._num_stale

    @property
    def shared(self) -> Collection[int]:
        """The blocks that several sequences use, as a live view."""
        return self._sharers.keys()

    def blocks_for(self, tokens: int) -> int:
        """How many blocks this many tokens need."""
        return -(-tokens // self.block_size)

    def root(self, salt: str, adapter: str = "") -> bytes:
        """The hash at the root of the chain for a salt and an adapter; empty: none."""
        root = blake2b(salt.encode(), digest_size=16, key=self._secret).digest()
        if not adapter:
            return root
        return blake2b(root + adapter.encode(), digest_size=16, key=self._secret).digest()

    def match(self, hashes: Seq[bytes]) -> Seq[bytes]:
        """The longest prefix of these hashes whose blocks the pool holds. Changes nothing."""
        known = self._block_of
        for count, each in enumerate(hashes):
            if each not in known:
                return hashes[:count]
        return hashes

    def can_hold(self, matched: Iterable[bytes], new: int) -> bool:
        """Whether acquire(matched) and then allocate(new) would succeed."""
        return self._count_cached(matched) + new <= self.num_free

    def _count_cached(self, matched: Iterable[bytes]) -> int:
        """How many of these blocks are free now: acquiring such a block uses up a free one."""
        in_use, block_of = self._in_use, self._block_of
        return sum([block_of[each] not in in_use for each in matched])

    def misfit(self, matched: Seq[bytes]) -> tuple[int, int, int]:
        """What `still_lacks` needs to know of a sequence that did not fit: how many hashes
        matched, how many of their blocks were free, and the count of taken blocks so far."""
        return len(matched), self._count_cached(matched), self._taken

    def still_lacks(
        self, misfit: tuple[int, int, int], hashes: Seq[bytes], full: int, blocks: int
    ) -> bool:
        """Whether a sequence still does not fit, decided without looking up each of its hashes.

        It needs `blocks` blocks; the first `full` of them have these hashes. False means that the
        hashes must be looked up.

        While the first hash that did not match is still missing, no more hashes match than before.
        A matched block that was free costs a free block. It stops doing so only when another
        sequence uses it. Then a cached block was taken, to be read or to be overwritten, and
        `_taken` counts both.
        """
        matched, cached, taken = misfit
        if matched < full and hashes[matched] in self._block_of:
            return False
        lacks = blocks - matched + max(0, cached - (self._taken - taken))
        return lacks > self.num_free

    def acquire(self, matched: Seq[bytes]) -> list[int]:
        """Put the blocks with these hashes in use, and return them."""
        blocks = [self._block_of[each] for each in matched]
        for each, block in zip(matched, blocks, strict=True):
            if block in self._in_use:
                self._sharers[block] = self._sharers.get(block, 0) + 1
            else:
                self._in_use.add(block)
                self._stale_of[each] += 1
                self._num_stale += 1
                self._taken += 1
        if 2 * self._num_stale > len(self._cached) + MAX_STALE:
            self._cached = deque(filter(self._is_cached, self._cached))
        return blocks

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, the empty ones first. A cached one loses its contents."""
        assert count <= self.num_free, "ask can_hold first"
        empty = self._empty
        blocks = empty[: -count - 1 : -1]
        del empty[len(empty) - len(blocks) :]
        self._taken += count - len(blocks)
        oldest, forget = self._cached.popleft, self._block_of.pop
        while len(blocks) < count:
            hashes = [oldest() for _ in range(count - len(blocks))]
            blocks += map(forget, filter(self._is_cached, hashes) if self._num_stale else hashes)
        self._in_use.update(blocks)
        return blocks

    def _is_cached(self, entry: bytes) -> bool:
        """Whether this queue entry is live. Called once for each entry, the oldest first."""
        if not (stale := self._stale_of.pop(entry, 0)):
            return True
        if stale > 1:
            self._stale_of[entry] = stale - 1
        self._num_stale -= 1
        return False

    def publish(self, blocks: Iterable[int], hashes: Iterable[bytes]) -> None:
        """Offer full blocks in use to later matches. The first block with a hash keeps it."""
        assert self._in_use.issuperset(blocks), "a free block has no contents to offer"
        for _ in map(self._block_of.setdefault, hashes, blocks):
            pass

    def release(self, blocks: Seq[int], hashes: Seq[bytes]) -> None:
        """Free a sequence's blocks. Its last block is reused first, so that prefixes live longest.

        hashes: those of the leading blocks, as published or matched. The pool may keep another
        block under the same hash.
        """
        named = len(hashes)
        is_alone = not self._sharers or self._sharers.keys().isdisjoint(blocks)
        if is_alone and list(map(self._block_of.get, hashes)) == blocks[:named]:
            self._in_use.difference_update(blocks)
            self._empty += blocks[: named - 1 : -1] if named else blocks[::-1]
            self._cached += reversed(hashes)
            return
        for place in reversed(range(len(blocks))):
            block = blocks[place]
            if others := self._sharers.pop(block, 0):
                if others > 1:
                    self._sharers[block] = others - 1
                continue
            self._in_use.remove(block)
            if place < named and self._block_of.get(own := hashes[place]) == block:
                self._cached.append(own)
            else:
                self._empty.append(block)

    def in_use(self, hashes: Iterable[bytes]) -> set[int]:
        """The blocks with these hashes that are in use."""
        return self._in_use.intersection([self._block_of[each] for each in hashes])

    def freed_by(self, tables: Iterable[Iterable[int]], kept: Collection[int]) -> int:
        """How many blocks outside `kept` would come free if all of these tables were released."""
        users = Counter([block for table in tables for block in table if block not in kept])
        return sum([count > self._sharers.get(block, 0) for block, count in users.items()])

    def check(self, tables: Iterable[Seq[int]]) -> None:
        """Raise AssertionError unless the blocks of these tables are those in use."""
        used = Counter(block for table in tables for block in table)
        assert self._sharers == {block: count - 1 for block, count in used.items() if count > 1}
        assert self._in_use == used.keys() and self._num_stale == self._stale_of.total()
        hashed, stale, cached = self._block_of.values(), self._stale_of.copy(), list[int]()
        for each in self._cached:
            if stale[each]:
                stale[each] -= 1
            else:
                cached.append(self._block_of[each])
        free = sorted([*self._empty, *cached])
        assert not stale.total() and self.num_free == len(free)
        assert free == [b for b in range(1, self.num_blocks + 1) if not used[b]]
        assert len(set(hashed)) == len(hashed) and set(hashed).isdisjoint(self._empty)
        assert not used[SCRATCH] and SCRATCH not in hashed
