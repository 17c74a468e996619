"""A sequence's blocks: reserved, added to, offered to the prefix cache and given back."""

from collections.abc import Sequence as Seq
from hashlib import blake2b
from struct import pack

from headway.core.blocks import BlockPool
from headway.core.sequence import Sequence

LINK = blake2b(digest_size=16)  # copied for each name, which is faster than making another
TOKEN = 4  # bytes of one in a name


def reserve(pool: BlockPool, sequence: Sequence, *, whole: bool) -> bool:
    """Blocks for all it knows, or for the whole of what it may ever hold; or none, and False."""
    known = len(sequence.tokens)
    # Never matched to the end: the last token must be computed, for its logits.
    full = (known - 1) // pool.block_size
    _name(pool, sequence, full)
    # Where the prompt's log-probabilities are wanted, each of its positions must be computed.
    full = 0 if sequence.scores else full
    most = pool.blocks_for(sequence.request.limit if whole else known)
    if pool.still_lacks(sequence.misfit, sequence.keys, full, most):
        return False
    matched = pool.match(sequence.keys[:full])
    new = most - len(matched)
    if not pool.can_hold(matched, new):
        sequence.misfit = pool.misfit(matched)
        return False
    sequence.blocks = pool.acquire(matched) + pool.allocate(new)
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


def grow_each(pool: BlockPool, sequences: Seq[Sequence]) -> None:
    """One more block for each."""
    size = pool.block_size
    for sequence, block in zip(sequences, pool.allocate(len(sequences)), strict=True):
        sequence.blocks.append(block)
        sequence.room += size
        pool.held[sequence.request.lane] += 1


def release(pool: BlockPool, sequence: Sequence) -> None:
    """All its blocks; the full ones stay cached until they are really needed."""
    pool.release(sequence.blocks, sequence.keys[: sequence.published])
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


def next_names(pool: BlockPool, sequences: Seq[Sequence]) -> list[bytes]:
    """Of the block that each has filled last and not offered yet."""
    for sequence in sequences:
        _name(pool, sequence, sequence.published + 1)
    return [sequence.keys[sequence.published] for sequence in sequences]


def publish_each(pool: BlockPool, sequences: Seq[Sequence], names: Seq[bytes]) -> None:
    """Offer the block that each has filled last, under its name."""
    pool.publish([sequence.blocks[sequence.published] for sequence in sequences], names)
    for sequence in sequences:
        sequence.published += 1
        sequence.fills += pool.block_size


def _name(pool: BlockPool, sequence: Sequence, full: int) -> None:
    """Names of 128 bits for its first full blocks, each built upon the one before it. The secret
    is in the chain's root, and so in every one of them."""
    keys, tokens, size = sequence.keys, sequence.tokens, pool.block_size
    if len(keys) >= full:
        return
    key = keys[-1] if keys else pool.root(sequence.request.salt)
    fresh, add = LINK.copy, keys.append
    fill = tokens[len(keys) * size : full * size]
    packed, width = pack(f"<{len(fill)}I", *fill), size * TOKEN
    for at in range(0, len(packed), width):
        link = fresh()
        link.update(key + packed[at : at + width])
        key = link.digest()
        add(key)
