"""Experts: a token's result does not depend on the other tokens of the batch."""

import pytest
import torch
import torch.nn.functional as F

from headway.executor.torch.layers.linear import Linear
from headway.executor.torch.layers.mlp import Mixture, Mlp

HIDDEN, WIDE, COUNT = 12, 20, 5


def made(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def expert(seed):
    up, down = made(2 * WIDE, HIDDEN, seed=seed), made(HIDDEN, WIDE, seed=seed + 50)
    return Mlp(Linear(up), Linear(down), gated=True, activation="silu")


@pytest.fixture(params=[True, False], ids=["waits", "never-waits"])
def mixture(request):
    router = Linear(made(COUNT, HIDDEN, seed=0))
    return Mixture(
        router,
        tuple(expert(i + 1) for i in range(COUNT)),
        chosen=2,
        renormalized=True,
        waits=request.param,
    )


def test_a_mixtures_output_is_the_weighted_sum_of_the_chosen_experts(mixture):
    x = made(1, HIDDEN, seed=9)
    scores = F.linear(x, made(COUNT, HIDDEN, seed=0))[0]
    best = scores.topk(2)
    parts = [mixture.experts[i](x) for i in best.indices.tolist()]
    shares = best.values.softmax(0)  # renormalised, so the other experts do not matter
    want = shares[0] * parts[0] + shares[1] * parts[1]
    assert (mixture(x) - want).abs().max() < 1e-5


def test_a_row_has_the_same_result_alone_and_in_a_batch(mixture):
    x = made(40, HIDDEN, seed=9)
    together = mixture(x)
    for i in range(40):
        assert (mixture(x[i : i + 1])[0] - together[i]).abs().max() < 1e-5
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert (mixture(x[order]) - together[order]).abs().max() < 1e-5


def test_a_row_of_nan_does_not_affect_other_rows(mixture):
    x = made(6, HIDDEN, seed=9)
    want = mixture(x)
    x[2] = torch.nan
    found = mixture(x)
    others = [0, 1, 3, 4, 5]
    assert found[2].isnan().all() and torch.allclose(found[others], want[others], atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "gelu_pytorch_tanh"])
def test_an_mlp_without_a_gate_equals_the_reference(activation):
    up, down, x = made(WIDE, HIDDEN, seed=1), made(HIDDEN, WIDE, seed=2), made(3, HIDDEN, seed=3)
    bias = made(WIDE, seed=4)
    wide = F.linear(x, up, bias)
    act = F.silu(wide) if activation == "silu" else F.gelu(wide, approximate="tanh")
    found = Mlp(Linear(up, bias), Linear(down), gated=False, activation=activation)(x)
    assert (found - F.linear(act, down)).abs().max() < 1e-4
