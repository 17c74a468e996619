"""Triton kernels for a layer's work on each token between its matrix products. Each program
computes one token, or a head or part of one, so a row's result does not depend on other rows.

Results are rounded to the tensors' dtype in the same places as by torch's operators (layers/).
"""

import triton
import triton.language as tl


@triton.jit
def add_norm(
    x,
    found,  # the addend
    after,  # weight of the norm of `found`
    before,  # weight of the norm of the sum
    total,
    normed,
    x_stride,  # elements of x from one row to the next
    normed_stride,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,  # SIZE rounded up to a power of two
    EPS: tl.constexpr,
    SCALE: tl.constexpr,
    ADDS: tl.constexpr,
    AFTER: tl.constexpr,  # whether there is a norm `after`
    BEFORE: tl.constexpr,  # whether there is a norm `before`
):
    """total = x + SCALE x after(found), normed = before(total). Without ADDS, total is x."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    real = at < SIZE
    value = tl.load(x + row * x_stride + at, mask=real, other=0.0)
    if ADDS:
        added = tl.load(found + row * SIZE + at, mask=real, other=0.0)
        if AFTER:
            weight = tl.load(after + at, mask=real, other=0.0)
            added = _normed(added, weight, tl.sum(_squares(added), 0), SIZE, EPS)
        added = added.to(tl.float32) * SCALE if SCALE != 1 else added.to(tl.float32)
        value = (value.to(tl.float32) + added).to(value.dtype)
        tl.store(total + row * SIZE + at, value, mask=real)
    if BEFORE:
        weight = tl.load(before + at, mask=real, other=0.0)
        found_norm = _normed(value, weight, tl.sum(_squares(value), 0), SIZE, EPS)
        tl.store(normed + row * normed_stride + at, found_norm, mask=real)


@triton.jit
def _squares(value):
    wide = value.to(tl.float32)
    return wide * wide


@triton.jit
def _normed(value, weight, squares, SIZE: tl.constexpr, EPS: tl.constexpr):
    """RmsNorm of `value`, whose squares sum to `squares`. The normed value is rounded to the
    weight's dtype, weighted, and rounded to its own dtype."""
    wide = value.to(tl.float32) * tl.rsqrt(squares / SIZE + EPS)
    wide = wide.to(weight.dtype).to(tl.float32) * weight.to(tl.float32)
    return wide.to(weight.dtype).to(value.dtype)


@triton.jit
def turn_and_write(
    qkv,  # [n, heads + 2 x kv_heads, HEAD_DIM]
    q_weight,  # weight of the norm over each query head
    k_weight,  # weight of the norm over each key head
    cosines,  # [positions, PAIRS]
    sines,
    positions,  # int64 [n]
    cells,  # int64 [n]: where keys and values go
    queries,  # [n, heads, HEAD_DIM]
    keys,  # [cells, kv_heads, HEAD_DIM]
    values,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    PAIRS: tl.constexpr,  # pairs of dimensions that are rotated
    EPS: tl.constexpr,
    NORMS: tl.constexpr,  # whether query and key heads are normed
    TURNS: tl.constexpr,  # whether query and key heads are rotated
):
    """Norm, rotate and write one head of one token. Keys and values are made finite first."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, PADDED)
    row = qkv + (token * (HEADS + 2 * KV_HEADS) + head) * HEAD_DIM
    value = tl.load(row + at, mask=at < HEAD_DIM, other=0.0)
    value = tl.where((head < HEADS) | _is_finite(value), value, 0.0)
    if head < HEADS + KV_HEADS:
        partner = tl.where(at < PAIRS, at + PAIRS, at - PAIRS)
        pairs = at < 2 * PAIRS
        other = tl.load(row + partner, mask=pairs, other=0.0)
        other = tl.where((head < HEADS) | _is_finite(other), other, 0.0)
        if NORMS:
            weight = q_weight if head < HEADS else k_weight
            squares = tl.sum(_squares(value), 0)
            mine = tl.load(weight + at, mask=at < HEAD_DIM, other=0.0)
            theirs = tl.load(weight + partner, mask=pairs, other=0.0)
            value = _normed(value, mine, squares, HEAD_DIM, EPS)
            other = _normed(other, theirs, squares, HEAD_DIM, EPS)
        if TURNS:
            angle = tl.load(positions + token) * PAIRS + at % PAIRS
            cosine = tl.load(cosines + angle, mask=pairs, other=0.0)
            sine = tl.load(sines + angle, mask=pairs, other=0.0)
            straight, across = _product(value, cosine), _product(other, sine)
            turned = tl.where(at < PAIRS, straight - across, straight + across)
            value = tl.where(pairs, turned.to(value.dtype), value)
    if head < HEADS:
        tl.store(queries + (token * HEADS + head) * HEAD_DIM + at, value, mask=at < HEAD_DIM)
    else:
        into = keys if head < HEADS + KV_HEADS else values
        place = tl.load(cells + token) * KV_HEADS + (head - HEADS) % KV_HEADS
        tl.store(into + place * HEAD_DIM + at, value, mask=at < HEAD_DIM)


@triton.jit
def _is_finite(value):
    return tl.abs(value.to(tl.float32)) < float("inf")  # false for NaN


@triton.jit
def _product(one, other):
    """one x other, rounded to their dtype and returned in float32."""
    return (one.to(tl.float32) * other.to(tl.float32)).to(one.dtype).to(tl.float32)


@triton.jit
def gate_up(
    wide,  # [n, 2 x SIZE]: gate, up
    out,  # [n, SIZE]
    SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,  # per program. A power of two
    SILU: tl.constexpr,  # else gelu in its tanh form
):
    """Compute act(gate) x up."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = at < SIZE
    gate = tl.load(wide + row * 2 * SIZE + at, mask=real, other=0.0)
    up = tl.load(wide + row * 2 * SIZE + SIZE + at, mask=real, other=0.0)
    x = gate.to(tl.float32)
    if SILU:
        acted = x * tl.sigmoid(x)
    else:  # x / 2 x (1 + tanh(z)) = x x sigmoid(2 z)
        acted = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    found = acted.to(gate.dtype).to(tl.float32) * up.to(tl.float32)
    tl.store(out + row * SIZE + at, found.to(out.dtype.element_ty), mask=real)
