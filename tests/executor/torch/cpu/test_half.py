"""Weights that stay in bfloat16 and are multiplied in float32; a tied head is kept once."""

import pytest
import torch

from headway.executor.torch.cpu.half import HalfMatrix, fits
from headway.executor.torch.layers import linear as module
from headway.executor.torch.layers.embedding import Embedding, SharedEmbedding
from headway.executor.torch.layers.linear import HalfLinear, Linear, linear
from headway.executor.torch.layers.product_choice import Kind
from headway.executor.torch.load import load
from headway.executor.torch.loading.weight_bytes import second_head_bytes, weight_bytes
from headway.executor.torch.memory.memory_plan import Limits
from tests.executor.torch.test_golden import all_logits


def drawn(outputs, inputs, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return (torch.randn(outputs, inputs, generator=stream) / inputs**0.5).bfloat16()


@pytest.mark.parametrize("rows", [1, 5, 47, 48, 49, 130])
def test_a_half_layer_multiplies_float32_rows_as_the_widened_weight_does(built, rows):
    weight, x = drawn(128, 1_030), drawn(rows, 1_030, seed=1).float()
    bias = drawn(1, 128, seed=2)[0].float()
    layer = HalfLinear([weight], bias, built)
    expected = x.double() @ weight.double().T + bias.double()
    found = layer(x)
    assert found.dtype is torch.float32 and (found - expected).abs().max() < 1e-5
    assert layer.nbytes == weight.nbytes + bias.nbytes
    for row in {0, rows - 1}:
        assert torch.equal(layer(x[row : row + 1])[0], found[row])


@pytest.mark.parametrize("rows", [1, 6, 81])
def test_products_of_bfloat16_rows_are_float32_products_rounded_once(built, rows):
    weight, x, bias = drawn(128, 1_030), drawn(rows, 1_030, seed=1), drawn(1, 128, seed=2)[0]
    found = HalfLinear([weight], bias, built)(x)
    wide = HalfLinear([weight], bias.float(), built)(x.float())
    assert found.dtype is torch.bfloat16 and torch.equal(found, wide.bfloat16())


def test_each_row_count_uses_the_kernel_chosen_for_it(built):
    """Pairs are chosen only where this processor multiplies them."""
    few = Kind.PAIRS if torch.bfloat16 in built.dtypes else Kind.WIDENED
    weight, x = drawn(128, 96), drawn(5, 96, seed=1)
    kinds = (few, few, few, Kind.WIDENED)
    layer = HalfLinear([weight], None, built, kinds)
    for rows in (1, 2, 3, 5):
        wide = kinds[min(rows, 3)] is Kind.WIDENED
        expected = HalfMatrix([weight], built).product(x[:rows], None, widened=wide)
        assert torch.equal(layer(x[:rows]), expected)
    assert torch.equal(layer(x.float()).bfloat16(), layer(x)), "those in float32 have one"


def test_rows_of_a_half_matrix_equal_the_weights_rows(built):
    weight, numbers = drawn(192, 30), torch.tensor([0, 63, 64, 191, 5, 5])
    rows = HalfMatrix([weight], built).rows(numbers, torch.float32)
    assert torch.equal(rows, weight[numbers].float())


@pytest.mark.parametrize("outputs", [(192,), (64, 128), (64, 30, 98), (60, 4)])
@pytest.mark.parametrize("inputs", [2, 30, 96])
def test_panels_of_several_weights_equal_those_of_their_concatenation(built, outputs, inputs):
    weights = [drawn(each, inputs, seed=each) for each in outputs]
    whole = torch.cat(weights)
    panels = whole.view(-1, 64, inputs // 2, 2).transpose(1, 2)
    assert torch.equal(built.half_panels(weights), panels)
    turned = [each.T.contiguous().T for each in weights]
    assert torch.equal(built.half_panels(turned), panels)


def test_a_layer_is_half_only_if_our_kernels_can_multiply_all_its_rows(built, monkeypatch):
    monkeypatch.setattr(module, "kernels", lambda: built)
    weight = drawn(64, 32)
    assert type(linear([weight], None, torch.float32)) is HalfLinear
    assert type(linear([weight.float()], None, torch.float32)) is Linear, "it is stored so"
    monkeypatch.setattr(module, "pack", lambda weight: None)  # not every processor can pack
    choice = [Kind.PAIRS, Kind.ONEDNN]
    monkeypatch.setattr(module, "product_choice", lambda *_: tuple(choice))
    for onednn, last, kind in (
        (True, Kind.ONEDNN, Linear),
        (True, Kind.WIDENED, HalfLinear),
        (False, Kind.ONEDNN, HalfLinear),
    ):
        monkeypatch.setattr(module, "has_onednn_bfloat16", lambda onednn=onednn: onednn)
        choice[1] = last
        layer = linear([weight], None, torch.bfloat16)
        assert type(layer) is kind
        if kind is HalfLinear:
            assert layer.kinds == (tuple(choice) if onednn else (Kind.WIDENED,))
        assert type(linear([weight.float()], None, torch.bfloat16)) is kind, "it is narrowed"
        assert type(linear([weight[:50]], None, torch.bfloat16)) is Linear
    assert type(linear([weight[:50]], None, torch.float32)) is Linear and not fits(50, 32)
    monkeypatch.setattr(module, "kernels", lambda: None)
    assert type(linear([weight], None, torch.float32)) is Linear


@pytest.mark.parametrize("chunk", [1, 7, 60])
def test_float32_logits_with_half_weights_equal_transformers(built, halves, monkeypatch, chunk):
    monkeypatch.setattr(module, "kernels", lambda: built)
    executor = load(halves.folder, Limits(), "float32").executor
    tokens = [(7 * i + 3) % 256 for i in range(60)]
    found = all_logits(executor, tokens, chunk)
    assert (found - halves.logits(tokens)).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tied_matrix_stored_in_bfloat16_is_kept_once(built, dtype, halves, monkeypatch):
    """Embeddings equal those of the model loaded without our kernels; logits are near its own."""
    loaded = load(halves.folder, Limits(), dtype)
    weights, config = loaded.executor.model.weights, loaded.config
    precision = config.precision(dtype, "cpu")
    if dtype == "float32":
        assert type(weights.embed) is SharedEmbedding and type(weights.head) is HalfLinear
    kept = weight_bytes(config, precision) + second_head_bytes(config, precision, "cpu")
    assert type(weights.embed) is Embedding or weights.nbytes == kept
    tokens = torch.tensor([0, 1, 70, 127])
    monkeypatch.setattr(module, "kernels", lambda: None)
    plain = load(halves.folder, Limits(), dtype).executor.model
    assert torch.equal(weights.embed(tokens), plain.weights.embed(tokens))
    x = drawn(4, config.hidden).to(plain.dtype)
    apart = (weights.head(x).float() - plain.weights.head(x).float()).abs().max()
    assert apart < (1e-5 if dtype == "float32" else 0.05)
