"""Norms, rotary positions and gates by our CPU kernels equal torch's operators."""

from types import SimpleNamespace

import pytest
import torch

from headway.executor.torch.fused.cpu_operators import CpuGate, CpuOperators
from headway.executor.torch.layers.mlp import Mlp
from headway.executor.torch.layers.norm import LayerNorm, RmsNorm
from headway.executor.torch.layers.operators import NO_NORM, TorchOperators

BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32
# For results of up to 8: four units in the last place in float32; in bfloat16, two roundings may
# go the other way.
APART = {FLOAT32: 4e-6, BFLOAT16: 2**-4}


def operators(kernels, qk_norm="", heads=(4, 2, 16), pairs=8, residual=1.0, dtype=FLOAT32):
    """torch's operators and ours, for the same model."""
    config = SimpleNamespace(
        scales=SimpleNamespace(residual=residual),
        family=SimpleNamespace(qk_norm=qk_norm),
        heads=heads[0],
        kv_heads=heads[1],
        head_dim=heads[2],
    )
    angles = torch.arange(40.0)[:, None, None] * torch.rand(pairs, generator=drawing(1))
    tables = [(angles.cos().to(dtype), angles.sin().to(dtype))]
    return (
        TorchOperators(config, tables, [0, -1]),
        CpuOperators(config, tables, [0, -1], kernels),
    )


def drawing(seed):
    return torch.Generator().manual_seed(seed)


def numbers(*shape, dtype, seed=0):
    return torch.randn(*shape, generator=drawing(seed)).to(dtype)


def norm(size, dtype, seed=5):
    return RmsNorm(torch.rand(size, generator=drawing(seed)).add(0.5).to(dtype), 1e-6)


def assert_near(found, expected, dtype):
    assert found.dtype is dtype
    assert (found.float() - expected.float()).abs().max() <= APART[dtype]


@pytest.mark.parametrize(
    "dtype, weights", [(FLOAT32, FLOAT32), (BFLOAT16, BFLOAT16), (BFLOAT16, FLOAT32)]
)
@pytest.mark.parametrize("rows, size", [(1, 896), (3, 17), (33, 1000)])
def test_residual_sums_and_norms_equal_torchs_operators(built, dtype, weights, rows, size):
    theirs, ours = operators(built)
    x, found = numbers(rows, size, dtype=dtype), numbers(rows, size, dtype=dtype, seed=1) * 2
    one, two = norm(size, weights), norm(size, weights, seed=6)
    cases = [(found, NO_NORM, two), (found, one, two), (found, one, NO_NORM), (None, NO_NORM, two)]
    for added, after, before in [*cases, (found, NO_NORM, NO_NORM), (None, NO_NORM, NO_NORM)]:
        expected = theirs.add_and_norm(x, added, after, before)
        sums, normed = ours.add_and_norm(x, added, after, before)
        assert_near(sums, expected[0], dtype)
        assert_near(normed, expected[1], dtype)
    alone = ours.add_and_norm(x[-1:], found[-1:], one, two)
    together = ours.add_and_norm(x, found, one, two)
    assert all(torch.equal(a[0], b[-1]) for a, b in zip(alone, together, strict=True))


def test_a_scaled_sum_is_rounded_once(built):
    _, ours = operators(built, residual=0.22)
    x, found = numbers(2, 64, dtype=BFLOAT16), numbers(2, 64, dtype=BFLOAT16, seed=1)
    total, _ = ours.add_and_norm(x, found, NO_NORM, NO_NORM)
    assert torch.equal(total, (x.double() + 0.22 * found.double()).bfloat16())


def test_layer_norm_is_computed_by_torch(built):
    theirs, ours = operators(built)
    x, layer_norm = numbers(3, 20, dtype=FLOAT32), LayerNorm(torch.ones(20), torch.ones(20), 1e-5)
    for found, expected in zip(
        ours.add_and_norm(x, x, NO_NORM, layer_norm),
        theirs.add_and_norm(x, x, NO_NORM, layer_norm),
        strict=True,
    ):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("qk_norm", ["", "head", "whole"])
@pytest.mark.parametrize("heads, pairs", [((4, 2, 16), 8), ((6, 1, 20), 5), ((3, 3, 128), 64)])
@pytest.mark.parametrize("layer", [0, 1])  # one with positions, and one without
def test_heads_are_normed_rotated_and_written_as_by_torchs_operators(
    built, dtype, qk_norm, heads, pairs, layer
):
    theirs, ours = operators(built, qk_norm, heads, pairs, dtype=dtype)
    queries, kv, size = heads
    qkv = numbers(7, (queries + 2 * kv) * size, dtype=dtype)
    qkv[2, queries * size + 1] = float("nan")  # of a key
    qkv[3, -1] = float("inf")  # of a value
    positions, cells = torch.arange(7) * 5, torch.tensor([3, 1, 4, 0, 9, 2, 6])
    wide = {"head": (size, size), "whole": (queries * size, kv * size)}.get(qk_norm)
    norms = (NO_NORM, NO_NORM) if wide is None else tuple(norm(each, dtype) for each in wide)
    found = []
    for each in (theirs, ours):
        cache = Cache(10, kv, size, dtype)
        q = each.of_step(positions, cells, cache).take_in(layer, qkv.clone(), *norms)
        found.append([q.reshape(7, queries, size), cache.keys[layer], cache.values[layer]])
    for expected, mine in zip(*found, strict=True):
        assert mine.isfinite().all()
        assert_near(mine, expected, dtype)


class Cache:
    def __init__(self, cells, heads, size, dtype):
        self.keys, self.values = (
            [torch.zeros(cells, heads, size, dtype=dtype) for _ in range(2)] for _ in range(2)
        )

    def write(self, layer, cells, keys, values):
        self.keys[layer].index_copy_(0, cells, keys)
        self.values[layer].index_copy_(0, cells, values)


def test_a_non_finite_query_does_not_change_other_rows(built):
    _, ours = operators(built)
    qkv = numbers(3, 8 * 16, dtype=FLOAT32)
    qkv[1, 5] = float("nan")
    cache = Cache(3, 2, 16, FLOAT32)
    q = ours.of_step(torch.arange(3), torch.arange(3), cache).take_in(0, qkv, NO_NORM, NO_NORM)
    assert q[1].isnan().any() and q[[0, 2]].isfinite().all()
    assert all(each[0].isfinite().all() for each in (cache.keys, cache.values))


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("rows, size", [(1, 4864), (5, 37), (9, 2100)])
def test_gates_equal_torchs_activation(built, dtype, activation, rows, size):
    wide = numbers(rows, 2 * size, dtype=dtype) * 2
    wide[0, :4] = torch.tensor([-90.0, 90.0, -1e30, 1e30])
    wide[0, size : size + 4] = 1.0
    wide[-1, 4] = float("nan")
    expected = Mlp(None, None, gated=True, activation=activation).activate(wide)
    found = CpuGate(built)(wide, activation)
    spoilt = torch.zeros(rows, size, dtype=torch.bool)
    spoilt[-1, 4] = True
    assert torch.equal(found.isnan(), spoilt)
    close = torch.isclose(
        found.float(),
        expected.float(),
        rtol=2**-7 if dtype is BFLOAT16 else 1e-5,
        atol=1e-3 if dtype is BFLOAT16 else 1e-5,
    )
    assert (close | spoilt).all()
