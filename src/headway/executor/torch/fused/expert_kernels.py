"""Grouped matrix products in Triton, for the experts of a mixture (MegaBlocks, Gale et al. 2022).

An assignment is a token and one of its experts. Assignments are sorted by expert, and each tile of
rows belongs to one expert. Only the device knows how many rows each expert has. So the grid has as
many tiles as could be needed, and each program finds its own tile.

    order      int64 [assignments]: assignment = token x CHOSEN + rank, sorted by expert
    ends       int32 [EXPERTS]: the end of each expert's places in `order`
    weights    [EXPERTS, COLUMNS, SIZE]
    rows       [tokens, SIZE] if FIRST, else [assignments, SIZE] in the places of `order`
    out        [assignments, COLUMNS]: in the places of `order` if FIRST, else by assignment

An element of the result is a sum over SIZE in steps of TILE_SIZE, independent of the other rows.
"""

import triton
import triton.language as tl


@triton.jit
def grouped_product(
    rows,
    weights,
    order,
    ends,
    out,
    assignments,
    SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHOSEN: tl.constexpr,  # experts per token
    EXPERTS: tl.constexpr,
    EXPERTS_PADDED: tl.constexpr,  # rounded up to a power of two
    FIRST: tl.constexpr,  # whether it is the first of the MLP's two products
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    TILE_SIZE: tl.constexpr,
    PRECISION: tl.constexpr,  # of products: ieee, tf32 or wide
):
    """Compute TILE_COLUMNS columns of one tile of rows, which belongs to one expert."""
    expert, place, end = _own_rows(ends, assignments, EXPERTS, EXPERTS_PADDED, TILE_ROWS)
    if place >= end:
        return
    places = place + tl.arange(0, TILE_ROWS)
    mine = places < end
    assignment = tl.load(order + places, mask=mine, other=0)
    row = (assignment // CHOSEN if FIRST else places).to(tl.int64)
    columns = tl.program_id(1) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    inside = columns < COLUMNS
    matrix = weights + expert.to(tl.int64) * COLUMNS * SIZE
    found = _over_size(
        rows + row[:, None] * SIZE,
        matrix + columns[None, :] * SIZE,
        mine,
        inside,
        SIZE,
        TILE_SIZE,
        PRECISION,
    )
    to = (places if FIRST else assignment).to(tl.int64)
    tl.store(
        out + to[:, None] * COLUMNS + columns[None, :],
        found.to(out.dtype.element_ty),
        mask=mine[:, None] & inside[None, :],
    )


@triton.jit
def _over_size(
    rows,  # [rows, 1]: pointers to each row's start
    matrix,  # [1, columns]: pointers to each column's weights
    mine,  # [rows]: whether the row exists
    inside,  # [columns]: whether the column exists
    SIZE: tl.constexpr,
    TILE_SIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """rows @ matrix, accumulated in float32. wide: operands are converted to float32 first."""
    found = tl.zeros([rows.shape[0], matrix.shape[1]], tl.float32)
    for begin in range(0, SIZE, TILE_SIZE):
        at = begin + tl.arange(0, TILE_SIZE)
        real = at < SIZE
        x_tile = tl.load(rows + at[None, :], mask=mine[:, None] & real[None, :], other=0.0)
        w_tile = tl.load(matrix + at[:, None], mask=inside[None, :] & real[:, None], other=0.0)
        if PRECISION == "wide":
            found += tl.dot(x_tile.to(tl.float32), w_tile.to(tl.float32), input_precision="ieee")
        else:
            found += tl.dot(x_tile, w_tile, input_precision=PRECISION)
    return found


@triton.jit
def _own_rows(
    ends,
    assignments,
    EXPERTS: tl.constexpr,
    EXPERTS_PADDED: tl.constexpr,
    TILE_ROWS: tl.constexpr,
):
    """The expert of this program's tile, the tile's first place, and the end of the expert.

    All are 0 for a program without a tile.
    """
    tile, experts = tl.program_id(0), tl.arange(0, EXPERTS_PADDED)
    until = tl.load(ends + experts, mask=experts < EXPERTS, other=assignments)
    since = tl.load(ends + experts - 1, mask=(experts > 0) & (experts < EXPERTS), other=0)
    since = tl.where(experts < EXPERTS, since, assignments)
    tiles = (until - since + TILE_ROWS - 1) // TILE_ROWS
    tile_ends = tl.cumsum(tiles, 0)
    is_own = (tile >= tile_ends - tiles) & (tile < tile_ends)
    expert = tl.sum(tl.where(is_own, experts, 0), 0)
    place = tl.sum(tl.where(is_own, since + (tile - tile_ends + tiles) * TILE_ROWS, 0), 0)
    return expert, place, tl.sum(tl.where(is_own, until, 0), 0)


@triton.jit
def add_up(
    found,  # [tokens, CHOSEN, SIZE]
    shares,  # [tokens, CHOSEN]
    out,  # [tokens, SIZE]
    SIZE: tl.constexpr,
    CHOSEN: tl.constexpr,
    COLUMNS: tl.constexpr,  # per program. A power of two
):
    """Compute one token's weighted sum over its experts, in order of rank, in float32."""
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for i in tl.static_range(CHOSEN):
        share = tl.load(shares + token * CHOSEN + i).to(tl.float32)
        at = found + (token * CHOSEN + i) * SIZE + columns
        total += share * tl.load(at, mask=columns < SIZE, other=0.0).to(tl.float32)
    tl.store(out + token * SIZE + columns, total.to(out.dtype.element_ty), mask=columns < SIZE)
