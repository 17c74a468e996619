"""Norms round as their family's reference does: bfloat16 results are equal to the last bit."""

import pytest
import torch
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from headway.executor.torch.layers.norm import LayerNorm, NoNorm, RmsNorm

SIZE, EPS = 48, 1e-5
KINDS = {
    "rms": (LlamaRMSNorm, lambda weight: weight),
    "wide": (Olmo2RMSNorm, lambda weight: weight.float()),
    "offset": (Gemma2RMSNorm, lambda weight: 1.0 + weight.float()),
}


def numbers(*shape):
    stream = torch.Generator().manual_seed(3)
    return (torch.randn(shape, generator=stream) * 3).to(torch.bfloat16)


@pytest.mark.parametrize("kind", KINDS)
def test_rms_norms_equal_the_reference(kind):
    reference, held = KINDS[kind]
    x, weight = numbers(200, SIZE), numbers(SIZE)
    theirs = reference(SIZE, EPS).to(torch.bfloat16)
    with torch.no_grad():
        theirs.weight.copy_(weight)
        found = RmsNorm(held(weight), EPS)(x)
        assert found.dtype is torch.bfloat16 and torch.equal(found, theirs(x))


def test_rms_norm_rounds_differently_with_bfloat16_and_float32_weights():
    x, weight = numbers(200, SIZE), numbers(SIZE)
    assert not torch.equal(RmsNorm(weight, EPS)(x), RmsNorm(weight.float(), EPS)(x))


def test_layer_norm_equals_its_formula_and_no_norm_returns_its_input():
    x, weight, bias = numbers(9, SIZE).float(), numbers(SIZE).float(), numbers(1, SIZE)[0].float()
    found = LayerNorm(weight, bias, EPS)(x)
    centred = x - x.mean(dim=-1, keepdim=True)
    scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + EPS).sqrt()
    assert (found - (scaled * weight + bias)).abs().max() < 1e-4
    assert NoNorm()(x) is x
