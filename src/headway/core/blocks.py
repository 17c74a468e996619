"""Paged KV memory as bookkeeping: who holds which block, and which blocks can be reused.

Pages are vLLM's PagedAttention (SOSP 2023); naming a full block by a hash chained over all that
comes before it is vLLM's automatic prefix caching.
"""

from collections import Counter, deque
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from hashlib import blake2b

from headway.errors import SettingError

SCRATCH = 0  # never handed out: padding and held slots write there
SLACK = 64  # void places that are put up with, beside as many as there are others


class BlockPool:
    """Blocks 1 to num_blocks. A block is held or free; a free one may still be cached.

    free, in order of reuse:   | empty, last let go first | cached, least recently let go first |

    A cached block that is matched again is held again, with its contents. That is also how a
    preempted sequence loses only what was needed: its full blocks wait here, tail first. What
    has a name is looked up by it, whoever holds it, so that most calls are one operation on many.
    """

    def __init__(self, num_blocks: int, block_size: int, secret: bytes = b"") -> None:
        if num_blocks < 1 or block_size < 1:
            raise SettingError(
                f"a pool needs 1 block of 1 token or more, not {num_blocks} of {block_size}"
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._secret = secret  # keys the chain's roots, so that nobody can name another's blocks
        self.held = Counter[str]()  # by lane; a block that several sequences share, for each
        self._empty = list(range(num_blocks, 0, -1))  # a stack
        self._cached: deque[bytes] = deque()  # names of free ones, and void places
        self._revived: Counter[bytes] = Counter()  # so many of a name's places are void: the oldest
        self._void = 0  # places, in all
        self._block_of: dict[bytes, int] = {}  # by name, free or held
        self._held: set[int] = set()
        self._more: dict[int, int] = {}  # holders beside the first, of those that several hold
        self._taken = 0  # cached blocks that were matched again or reused, so far

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._cached) - self._void

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def root(self, salt: str) -> bytes:
        """Where the chain of a tenant's keys begins."""
        return blake2b(salt.encode(), digest_size=16, key=self._secret).digest()

    def match(self, keys: Seq[bytes]) -> Seq[bytes]:
        """The longest prefix of these names whose blocks are there. Changes nothing."""
        known = self._block_of
        return keys[: next((i for i, key in enumerate(keys) if key not in known), len(keys))]

    def knows(self, keys: Iterable[bytes]) -> bool:
        """Whether a block is there under any of these names."""
        return not self._block_of.keys().isdisjoint(keys)

    def can_hold(self, matched: Iterable[bytes], new: int) -> bool:
        """Whether acquire(matched) and then allocate(new) would succeed."""
        held, block_of = self._held, self._block_of
        revived = sum([block_of[key] not in held for key in matched])
        return revived + new <= self.num_free

    def misfit(self, matched: Seq[bytes]) -> tuple[int, int, int]:
        """What `still_lacks` needs to know of a sequence that could not be held: how many names
        matched, how many of their blocks were free, and how many had been taken by then."""
        held, block_of = self._held, self._block_of
        return len(matched), sum([block_of[key] not in held for key in matched]), self._taken

    def still_lacks(
        self, misfit: tuple[int, int, int], keys: Seq[bytes], full: int, blocks: int
    ) -> bool:
        """Whether a sequence still cannot be held, found without looking up each of its names.

        It needs so many blocks, and the first `full` of them have these names. False means that
        the names must be looked up.

        While the first name that did not match is still missing, no more names match than before.
        A matched block that was free costs a free block. It stops doing so only when another
        sequence holds it. Then a cached block was taken, to be read or to be overwritten, and
        `_taken` counts both.
        """
        matched, revived, taken = misfit
        if matched < full and keys[matched] in self._block_of:
            return False
        lacks = blocks - matched + max(0, revived - (self._taken - taken))
        return lacks > self.num_free

    def acquire(self, matched: Seq[bytes]) -> list[int]:
        """The blocks that have these names."""
        blocks = [self._block_of[key] for key in matched]
        for key, block in zip(matched, blocks, strict=True):
            if block in self._held:
                self._more[block] = self._more.get(block, 0) + 1
            else:
                self._held.add(block)
                self._revived[key] += 1
                self._void += 1
                self._taken += 1
        if 2 * self._void > len(self._cached) + SLACK:
            self._cached = deque(filter(self._is_cached, self._cached))
        return blocks

    def allocate(self, count: int) -> list[int]:
        assert count <= self.num_free, "ask can_hold first"
        empty = self._empty
        blocks = empty[: -count - 1 : -1]
        del empty[len(empty) - len(blocks) :]
        self._taken += count - len(blocks)
        oldest, forget = self._cached.popleft, self._block_of.pop
        while len(blocks) < count:
            names = [oldest() for _ in range(count - len(blocks))]
            blocks += map(forget, filter(self._is_cached, names) if self._void else names)
        self._held.update(blocks)
        return blocks

    def _is_cached(self, key: bytes) -> bool:
        """Asked once of each place, the oldest first: no, if its block was revived from there."""
        if not (void := self._revived.pop(key, 0)):
            return True
        if void > 1:
            self._revived[key] = void - 1
        self._void -= 1
        return False

    def publish(self, blocks: Iterable[int], keys: Iterable[bytes]) -> None:
        """Offer full, held blocks to later matches. The first block under a name keeps it."""
        assert self._held.issuperset(blocks), "a free block has no contents to offer"
        for _ in map(self._block_of.setdefault, keys, blocks):
            pass

    def release(self, blocks: Seq[int], keys: Seq[bytes]) -> None:
        """Let go of a sequence's blocks. Its tail is reused first, so its prefix lives longest.

        keys: under which the first of them were offered or matched; another block may have them.
        """
        named = len(keys)
        is_alone = self._more.keys().isdisjoint(blocks)
        if is_alone and list(map(self._block_of.get, keys)) == blocks[:named]:
            self._held.difference_update(blocks)
            self._empty += blocks[: named - 1 : -1] if named else blocks[::-1]
            self._cached += reversed(keys)
            return
        for place in reversed(range(len(blocks))):
            block = blocks[place]
            if more := self._more.pop(block, 0):
                if more > 1:
                    self._more[block] = more - 1
                continue
            self._held.remove(block)
            if place < named and self._block_of.get(key := keys[place]) == block:
                self._cached.append(key)
            else:
                self._empty.append(block)

    def check(self, tables: Iterable[Seq[int]]) -> None:
        """Raise AssertionError unless these tables hold exactly what is held."""
        held = Counter(block for table in tables for block in table)
        assert self._more == {block: count - 1 for block, count in held.items() if count > 1}
        assert self._held == held.keys() and self._void == self._revived.total()
        named, void, cached = self._block_of.values(), self._revived.copy(), list[int]()
        for key in self._cached:
            if void[key]:
                void[key] -= 1
            else:
                cached.append(self._block_of[key])
        free = sorted([*self._empty, *cached])
        assert not void.total() and self.num_free == len(free)
        assert free == [b for b in range(1, self.num_blocks + 1) if not held[b]]
        assert len(set(named)) == len(named) and set(named).isdisjoint(self._empty)
        assert not held[SCRATCH] and SCRATCH not in named
