"""The rows of a linear layer do not affect each other, packed or plain."""

import pytest
import torch
import torch.nn.functional as F

from headway.executor.torch.layers.linear import Linear, pack

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}  # for outputs of size 1, summed over 192


def made(dtype, bias, packing):
    stream = torch.Generator().manual_seed(0)
    weight = torch.randn(320, 192, generator=stream) / 192**0.5
    offset = torch.randn(320, generator=stream) if bias else None
    x = torch.randn(256, 192, generator=stream)
    x[3, 5] = 1000.0  # an outlier, as in real activations
    layer = Linear(weight.to(dtype), None if offset is None else offset.to(dtype), packing)
    return layer, weight.to(dtype), None if offset is None else offset.to(dtype), x.to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("packing", [False, True])
def test_a_row_alone_equals_the_same_row_in_a_batch(dtype, bias, packing):
    layer, weight, offset, x = made(dtype, bias, packing)
    whole, plain = layer(x), F.linear(x, weight, offset)
    size = 1 + plain.float().abs().amax(dim=1, keepdim=True)
    assert ((whole - plain).abs() / size).max() < TOLERANCE[dtype]
    for rows in ([3], [4], [3, 4], range(8), range(100, 133)):
        part = layer(x[list(rows)])
        assert ((part - whole[list(rows)]).abs() / size[list(rows)]).max() < TOLERANCE[dtype]


def test_the_plain_weight_is_kept_only_if_it_is_not_packed():
    weight = torch.ones(8, 4)
    assert Linear(weight, packing=False).weight is weight
    packed = Linear(weight)
    assert (packed.weight is None) == (packed.packed is not None)
    assert packed.nbytes == 8 * 4 * 4
    assert Linear(weight, torch.ones(8)).nbytes == (8 * 4 + 8) * 4


def test_a_weight_that_cannot_be_packed_is_used_unpacked(monkeypatch):
    assert pack(torch.ones(4, 4, dtype=torch.float64)) is None
    monkeypatch.setattr("torch._C._has_mkldnn", False)
    assert pack(torch.ones(4, 4)) is None
    x = torch.randn(2, 4)
    assert torch.equal(Linear(torch.eye(4))(x), x)
