"""Paged attention in Triton: one kernel for rows of one query and of many, and one that merges.

The softmax is computed tile by tile as in FlashAttention (Dao et al. 2022). A long row of one
query is cut into spans of keys that are computed in parallel and merged, as in Flash-Decoding
(Dao et al. 2023). Keys and values are found through the block tables, as in PagedAttention
(Kwon et al. 2023). No array of size rows x context is materialised.

A row's arithmetic does not depend on the other rows of the step: where tiles and spans begin
follows from the row alone.

    queries      [N, heads, head_dim], a token's heads end to end
    keys, values [cells, kv_heads, head_dim]
    tables       int32 [slots, WIDTH]: the blocks of each slot's sequence
    items        int32 [items, FIELDS]: slot, token, queries, position, keys, begin, end, partial
    out          [N, heads, head_dim]
    partials     float32 [partials, heads, head_dim]: a span's sum of values, weighted
    sums         float32 [partials, heads, 2]: a span's largest score and its sum of weights

Query i of an item is flat token `token + i`. It sees the row's keys up to position
min(position + i, keys - 1). The item reads keys `begin` to `end`. partial: the index where its
sums go, to be merged; -1: the item reads all keys, and its result goes to `out`.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
FIELDS = tl.constexpr(8)


@triton.jit
def attend(
    queries,
    keys,
    values,
    tables,
    items,
    out,
    partials,
    sums,
    stride,  # elements of the queries from one token to the next
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,  # of scores
    CAP: tl.constexpr,  # soft cap of scores; 0: none
    WINDOW: tl.constexpr,  # how many keys a query sees, its own included; 0: all
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads per KV head
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    BLOCK: tl.constexpr,  # tokens of a block of the KV memory
    TILE_ROWS: tl.constexpr,
    TILE_KEYS: tl.constexpr,
    PRECISION: tl.constexpr,  # of products: ieee, tf32 or wide
):
    """Compute one item (queries of one row) for one KV head. Row r of the score tile is query
    r // GROUP and head r % GROUP of the group, so the group's heads share each key that is read."""
    item, kv_head = items + tl.program_id(0) * FIELDS, tl.program_id(1)
    slot, token = tl.load(item).to(tl.int64), tl.load(item + 1).to(tl.int64)
    rows, dims = tl.arange(0, TILE_ROWS), tl.arange(0, DIMS)
    query, head = rows // GROUP, kv_head * GROUP + rows % GROUP
    mine = (query < tl.load(item + 2))[:, None] & (dims < HEAD_DIM)[None, :]
    at = (token + query)[:, None] * stride + head[:, None] * HEAD_DIM + dims[None, :]
    tile = tl.load(queries + at, mask=mine, other=0.0)
    last = tl.minimum(tl.load(item + 3) + query, tl.load(item + 4) - 1)
    begin, end, partial = tl.load(item + 5), tl.load(item + 6), tl.load(item + 7).to(tl.int64)
    largest, weight, found = _over_keys(
        tile, keys, values, tables + slot * WIDTH, kv_head, last, begin, end,
        SCALE, CAP, WINDOW, KV_HEADS, HEAD_DIM, BLOCK, TILE_KEYS, PRECISION,
    )  # fmt: skip
    where = (tl.where(partial < 0, token, partial) + query) * KV_HEADS * GROUP + head
    at = where[:, None] * HEAD_DIM + dims[None, :]
    if partial < 0:
        found = found / tl.where(weight > 0, weight, 1.0)[:, None]
        tl.store(out + at, found.to(out.dtype.element_ty), mask=mine)
    else:
        tl.store(partials + at, found, mask=mine)
        tl.store(sums + where * 2, largest, mask=query < tl.load(item + 2))
        tl.store(sums + where * 2 + 1, weight, mask=query < tl.load(item + 2))


@triton.jit
def _over_keys(
    tile,  # [rows, dims] of queries
    keys,
    values,
    table,  # the row's block table
    kv_head,
    last,  # [rows]: the last key that each query sees
    begin,
    end,
    SCALE: tl.constexpr,
    CAP: tl.constexpr,
    WINDOW: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE_KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute each query's largest score, sum of weights and weighted sum of values."""
    dims = tl.arange(0, tile.shape[1])
    largest = tl.full([tile.shape[0]], -float("inf"), tl.float32)
    weight = tl.zeros([tile.shape[0]], tl.float32)
    found = tl.zeros(tile.shape, tl.float32)
    for first in range(begin, end, TILE_KEYS):
        at = first + tl.arange(0, TILE_KEYS)
        block = tl.load(table + at // BLOCK, mask=at < end, other=0).to(tl.int64)
        cells = (block * BLOCK + at % BLOCK) * KV_HEADS + kv_head
        where = cells[:, None] * HEAD_DIM + dims[None, :]
        real = (at < end)[:, None] & (dims < HEAD_DIM)[None, :]
        k_tile = tl.load(keys + where, mask=real, other=0.0)
        scores = _product(tile, tl.trans(k_tile), PRECISION)
        visible = (at[None, :] <= last[:, None]) & (at < end)[None, :]
        if WINDOW > 0:
            visible &= at[None, :] > last[:, None] - WINDOW
        scores = tl.where(visible, _capped(scores * SCALE, CAP) * LOG2_E, -float("inf"))
        grown = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(grown == -float("inf"), 0.0, grown)  # a query may have seen nothing yet
        shares, kept = tl.exp2(scores - shift[:, None]), tl.exp2(largest - shift)
        v_tile = tl.load(values + where, mask=real, other=0.0)
        added = _product(shares.to(v_tile.dtype), v_tile, PRECISION)
        weight, found = weight * kept + tl.sum(shares, 1), found * kept[:, None] + added
        largest = grown
    return largest, weight, found


@triton.jit
def _product(one, other, PRECISION: tl.constexpr):
    """one @ other, accumulated in float32. wide: the operands are converted to float32 first."""
    if PRECISION == "wide":
        return tl.dot(one.to(tl.float32), other.to(tl.float32), input_precision="ieee")
    return tl.dot(one, other, input_precision=PRECISION)


@triton.jit
def _capped(scores, CAP: tl.constexpr):
    """CAP x tanh(scores / CAP); without a cap, the scores unchanged."""
    if CAP > 0:
        return CAP * (2 * tl.sigmoid(2 * scores / CAP) - 1)
    return scores


@triton.jit
def merge(
    partials,
    sums,
    merges,  # int32 [rows, 3]: flat token, first partial, number of partials
    out,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
):
    """Merge the spans of one row and one query head, in order."""
    row, head, dims = merges + tl.program_id(0) * 3, tl.program_id(1), tl.arange(0, DIMS)
    token, begin = tl.load(row).to(tl.int64), tl.load(row + 1).to(tl.int64)
    at = begin * HEADS + head
    largest, weight = tl.load(sums + at * 2), tl.load(sums + at * 2 + 1)
    found = tl.load(partials + at * HEAD_DIM + dims, mask=dims < HEAD_DIM, other=0.0)
    for i in range(1, tl.load(row + 2)):
        at = (begin + i) * HEADS + head
        its_largest, its_weight = tl.load(sums + at * 2), tl.load(sums + at * 2 + 1)
        theirs = tl.load(partials + at * HEAD_DIM + dims, mask=dims < HEAD_DIM, other=0.0)
        grown = tl.maximum(largest, its_largest)
        ours, its = tl.exp2(largest - grown), tl.exp2(its_largest - grown)
        found, weight, largest = (
            found * ours + theirs * its,
            weight * ours + its_weight * its,
            grown,
        )
    place = (token * HEADS + head) * HEAD_DIM + dims
    tl.store(out + place, (found / weight).to(out.dtype.element_ty), mask=dims < HEAD_DIM)
