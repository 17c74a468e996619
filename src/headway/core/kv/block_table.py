"""Reserve, grow, publish to the prefix cache and release the blocks of a sequence."""

from hashlib import blake2b
from struct import iter_unpack, pack

from headway.core.kv.blocks import BlockPool
from headway.core.sequences.sequence import Sequence

EMPTY_HASH = blake2b(digest_size=16)  # copied for each block: faster than making a new one
TOKEN_BYTES = 4  # of a token id, as it is hashed


def reserve(pool: BlockPool, sequence: Sequence, *, whole: bool) -> bool:
    """Reserve blocks for all tokens that the sequence has or, with `whole`, may ever have.

    Matching blocks of the prefix cache are reused. Returns False, and reserves nothing, if the
    sequence does not fit.
    """
    full, most = matchable(pool, sequence), _blocks_for(pool, sequence, whole)
    if pool.still_lacks(sequence.misfit, sequence.hashes, full, most):
        return False
    matched = pool.match(sequence.hashes[:full])
    new = most - len(matched)
    if not pool.can_hold(matched, new):
        sequence.misfit = pool.misfit(matched)
        return False
    sequence.blocks = pool.acquire(matched) + pool.allocate(new) if matched else pool.allocate(new)
    pool.blocks_of_lane[sequence.request.lane] += len(sequence.blocks)
    sequence.room = len(sequence.blocks) * pool.block_size
    sequence.published = len(matched)
    sequence.full_at = (len(matched) + 1) * pool.block_size
    sequence.computed = sequence.scheduled = len(matched) * pool.block_size
    return True


def demand(pool: BlockPool, sequence: Sequence, *, whole: bool) -> tuple[int, set[int]]:
    """How many free blocks `reserve` needs, and which blocks in use it would share."""
    shared = pool.in_use(pool.match(sequence.hashes[: matchable(pool, sequence)]))
    return _blocks_for(pool, sequence, whole) - len(shared), shared


def cached(pool: BlockPool, sequence: Sequence) -> int:
    """How many of the sequence's leading tokens are in the prefix cache."""
    return len(pool.match(sequence.hashes[: matchable(pool, sequence)])) * pool.block_size


def matchable(pool: BlockPool, sequence: Sequence) -> int:
    """How many leading blocks may match the prefix cache. Hashes the sequence's full blocks."""
    # The last token is never matched: it must be computed, for its logits.
    full = (len(sequence.tokens) - 1) // pool.block_size
    _hash_blocks(pool, sequence, full)
    return 0 if sequence.whole else full


def _blocks_for(pool: BlockPool, sequence: Sequence, whole: bool) -> int:
    return pool.blocks_for(sequence.request.limit if whole else len(sequence.tokens))


def grow(pool: BlockPool, sequence: Sequence, count: int) -> None:
    """Add `count` blocks to a running sequence."""
    sequence.blocks += pool.allocate(count)
    pool.blocks_of_lane[sequence.request.lane] += count
    sequence.room = len(sequence.blocks) * pool.block_size


def release(pool: BlockPool, sequence: Sequence) -> None:
    """Free all blocks of the sequence. Published blocks stay cached until they are needed."""
    pool.release(sequence.blocks, sequence.hashes[: sequence.published])
    pool.blocks_of_lane[sequence.request.lane] -= len(sequence.blocks)
    sequence.blocks, sequence.room = [], 0
    sequence.computed = sequence.scheduled = sequence.sent = 0


def publish(pool: BlockPool, sequence: Sequence) -> None:
    """Publish the blocks that the sequence has filled since the last call."""
    full = sequence.computed // pool.block_size
    _hash_blocks(pool, sequence, full)
    new = slice(sequence.published, full)
    pool.publish(sequence.blocks[new], sequence.hashes[new])
    sequence.published = full
    sequence.full_at = (full + 1) * pool.block_size


def _hash_blocks(pool: BlockPool, sequence: Sequence, full: int) -> None:
    """Hash the first `full` blocks: 128 bits each, chained. The pool's secret keys the root of the
    chain, so every hash depends on it."""
    hashes, tokens, size = sequence.hashes, sequence.tokens, pool.block_size
    if len(hashes) >= full:
        return
    request = sequence.request
    last = hashes[-1] if hashes else pool.root(request.salt, request.adapter)
    copy, add = EMPTY_HASH.copy, hashes.append
    fill = tokens[len(hashes) * size : full * size]
    packed = pack(f"<{len(fill)}I", *fill)
    for (block,) in iter_unpack(f"{size * TOKEN_BYTES}s", packed):
        link = copy()
        link.update(last + block)
        last = link.digest()
        add(last)
