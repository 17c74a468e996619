"""Paged KV memory as bookkeeping: who holds which block, and which blocks can be reused.

Pages are vLLM's PagedAttention (SOSP 2023); naming a full block by a hash chained over all that
comes before it is vLLM's automatic prefix caching.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from hashlib import blake2b
from struct import pack

from headway.core.request import Sequence
from headway.errors import SettingError

SCRATCH = 0  # never handed out: padding and held slots write there


class BlockPool:
    """Blocks 1 to num_blocks. A block is held (refs > 0) or free; a free one may still be cached.

    free, in order of reuse:   | empty, last let go first | cached, least recently let go first |

    A cached block that is matched again is held again, with its contents. That is also how a
    preempted sequence loses only what was needed: its full blocks wait here, tail first.
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
        self._refs = [0] * (num_blocks + 1)
        self._empty = list(range(num_blocks, 0, -1))  # a stack
        self._cached: OrderedDict[int, bytes] = OrderedDict()  # with their keys
        self._key_of = [b""] * (num_blocks + 1)  # empty: not offered
        self._block_of: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._cached)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def root(self, salt: str) -> bytes:
        """Where the chain of a tenant's keys begins."""
        return blake2b(salt.encode(), digest_size=16, key=self._secret).digest()

    def match(self, keys: Iterable[bytes]) -> list[int]:
        """Blocks of the longest cached prefix of keys. Changes nothing."""
        found = []
        for key in keys:
            if (block := self._block_of.get(key)) is None:
                break
            found.append(block)
        return found

    def can_hold(self, matched: Seq[int], new: int) -> bool:
        """Whether acquire(matched) and then allocate(new) would succeed."""
        revived = sum(self._refs[block] == 0 for block in matched)
        return revived + new <= self.num_free

    def acquire(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self._refs[block] == 0:
                del self._cached[block]
            self._refs[block] += 1

    def allocate(self, count: int) -> list[int]:
        assert count <= self.num_free, "ask can_hold first"
        empty, refs = self._empty, self._refs
        blocks = empty[: -count - 1 : -1]
        del empty[len(empty) - len(blocks) :]
        key_of, block_of, oldest = self._key_of, self._block_of, self._cached.popitem
        for _ in range(count - len(blocks)):
            block, key = oldest(last=False)
            del block_of[key]
            key_of[block] = b""
            blocks.append(block)
        for block in blocks:
            refs[block] = 1
        return blocks

    def publish(self, blocks: Seq[int], keys: Seq[bytes]) -> None:
        """Offer full, held blocks to later matches. The first block under a key wins."""
        key_of, first_under = self._key_of, self._block_of.setdefault
        assert all(map(self._refs.__getitem__, blocks)), "a free block has no contents to offer"
        for block, key in zip(blocks, keys, strict=True):
            if not key_of[block] and first_under(key, block) == block:
                key_of[block] = key

    def release(self, blocks: Seq[int]) -> None:
        """Let go of a sequence's blocks. Its tail is reused first, so its prefix lives longest."""
        refs, key_of, cached, empty = self._refs, self._key_of, self._cached, self._empty
        for block in reversed(blocks):
            refs[block] = left = refs[block] - 1
            if not left:
                if key := key_of[block]:
                    cached[block] = key
                else:
                    empty.append(block)

    def check(self, tables: Iterable[Seq[int]]) -> None:
        """Raise AssertionError unless these tables hold exactly what is held."""
        held = Counter(block for table in tables for block in table)
        assert self._refs == [held[block] for block in range(self.num_blocks + 1)]
        free = sorted([*self._empty, *self._cached])
        assert free == [b for b in range(1, self.num_blocks + 1) if not held[b]]
        named = {block: key for block, key in enumerate(self._key_of) if key}
        assert named.items() >= self._cached.items()
        assert not named.keys() & set(self._empty)
        assert {b: k for k, b in self._block_of.items()} == named
        assert not held[SCRATCH] and SCRATCH not in named


def reserve(pool: BlockPool, sequence: Sequence, *, whole: bool) -> bool:
    """Blocks for all it knows, or for the whole of what it may ever hold; or none, and False."""
    known = len(sequence.tokens)
    # Never matched to the end: the last token must be computed, for its logits.
    full = (known - 1) // pool.block_size
    _name(pool, sequence, full)
    # Where the prompt's log-probabilities are wanted, each of its positions must be computed.
    matched = [] if sequence.scores else pool.match(sequence.keys[:full])
    new = pool.blocks_for(sequence.request.limit if whole else known) - len(matched)
    if not pool.can_hold(matched, new):
        return False
    pool.acquire(matched)
    sequence.blocks = matched + pool.allocate(new)
    pool.held[sequence.request.lane] += len(sequence.blocks)
    sequence.room = len(sequence.blocks) * pool.block_size
    sequence.published = len(matched)
    sequence.fills = (len(matched) + 1) * pool.block_size
    sequence.computed = sequence.scheduled = len(matched) * pool.block_size
    return True


def grow(pool: BlockPool, sequence: Sequence, count: int) -> None:
    """More blocks for one that runs."""
    sequence.blocks += pool.allocate(count)
    pool.held[sequence.request.lane] += count
    sequence.room = len(sequence.blocks) * pool.block_size


def release(pool: BlockPool, sequence: Sequence) -> None:
    """All its blocks; the full ones stay cached until they are really needed."""
    pool.release(sequence.blocks)
    pool.held[sequence.request.lane] -= len(sequence.blocks)
    sequence.blocks, sequence.room = [], 0
    sequence.computed = sequence.scheduled = sequence.sent = 0


def publish(pool: BlockPool, sequence: Sequence) -> None:
    """Offer the blocks that it has filled since it was last asked."""
    full = sequence.computed // pool.block_size
    _name(pool, sequence, full)
    new = slice(sequence.published, full)
    pool.publish(sequence.blocks[new], sequence.keys[new])
    sequence.published = full
    sequence.fills = (full + 1) * pool.block_size


def _name(pool: BlockPool, sequence: Sequence, full: int) -> None:
    """Names for its first full blocks, each built upon the one before it."""
    keys, size = sequence.keys, pool.block_size
    if len(keys) >= full:
        return
    key = keys[-1] if keys else pool.root(sequence.request.salt)
    ids = sequence.tokens[len(keys) * size : full * size]
    text, width = pack(f"<{len(ids)}I", *ids), 4 * size  # twice as fast as array("I", ids)
    for at in range(0, len(text), width):
        # 128 bits; the secret is in the root, and so in every key after it.
        key = blake2b(key + text[at : at + width], digest_size=16).digest()
        keys.append(key)
