"""Products by our own kernels are right, and each row is independent of the others."""

import pytest
import torch

from headway.executor.torch.config.processor import cpu_flags
from headway.executor.torch.cpu.build import NEEDED, SWITCH
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.layers import linear, product_choice
from headway.executor.torch.layers.linear import HalfLinear, Linear
from headway.executor.torch.layers.product_choice import Kind
from headway.executor.torch.layers.quantized import QuantizedLinear

needs_kernels = pytest.mark.skipif(kernels() is None, reason="there are no kernels here")
SHAPES = [(64, 2), (128, 96), (320, 1_026), (64, 2_050)]  # of one panel, of several, of two chunks
HALF = torch.bfloat16
UNIT = {torch.float32: 2**-23, HALF: 2**-8}


def drawn(outputs, inputs, rows, dtype):
    stream = torch.Generator().manual_seed(outputs * inputs + rows)
    weight = (torch.randn(outputs, inputs, generator=stream) / inputs**0.5).bfloat16()
    x = torch.randn(rows, inputs, generator=stream)
    x[-1, 0] = 300.0  # an outlier, as in real activations
    return weight, x.to(dtype), torch.randn(outputs, generator=stream).to(dtype)


def in_panels(weight):
    """The weight in the panel layout that products.cpp draws."""
    outputs, inputs = weight.shape
    return weight.view(outputs // 64, 64, inputs // 2, 2).transpose(1, 2).contiguous()


@pytest.mark.parametrize("dtype, widened", [*((dtype, False) for dtype in UNIT), (HALF, True)])
@pytest.mark.parametrize("outputs, inputs", SHAPES)
@pytest.mark.parametrize("rows", [1, 5, 6, 7, 13, 16, 17, 32, 33, 300])
def test_a_product_is_right_and_a_row_alone_has_the_same_bits(
    built, outputs, inputs, rows, dtype, widened
):
    found = built
    if not widened and dtype not in found.dtypes:
        pytest.skip("this processor has no products in bfloat16")
    weight, x, bias = drawn(outputs, inputs, rows, dtype)
    panels = in_panels(weight)
    y = found.product(x, panels.data_ptr(), outputs, bias, widened)
    exact = x.double() @ weight.double().T + bias.double()
    # Rounding of the sum: at most one unit for each term, and one for the result.
    most = (x.double().abs() @ weight.double().abs().T) * inputs * 2**-23 + exact.abs() * UNIT[
        dtype
    ]
    assert y.dtype is dtype and ((y.double() - exact).abs() <= most + 1e-6).all()
    plain = found.product(x, panels.data_ptr(), outputs, None, widened)
    for row in {0, rows // 2, rows - 1}:
        alone = found.product(x[row : row + 1], panels.data_ptr(), outputs, None, widened)
        assert torch.equal(alone[0], plain[row])
    if widened:
        wide = found.product(x.float(), panels.data_ptr(), outputs, bias.float())
        assert torch.equal(y, wide.to(dtype)), "it is float32's product, rounded once"
        turned = x.T.contiguous().T
        assert torch.equal(found.product(turned, panels.data_ptr(), outputs, bias, True), y)


@needs_kernels
def test_a_non_finite_row_does_not_change_other_rows():
    weight, x, _ = drawn(128, 96, 7, torch.float32)
    panels = in_panels(weight)
    found = kernels().product(x, panels.data_ptr(), 128, None)
    x[3, 5] = float("nan")
    spoilt = kernels().product(x, panels.data_ptr(), 128, None)
    others = [0, 1, 2, 4, 5, 6]
    assert spoilt[3].isnan().all() and torch.equal(spoilt[others], found[others])


needs_pairs = pytest.mark.skipif(
    "avx512_bf16" not in cpu_flags(), reason="this processor has no products in bfloat16"
)


class Spied:
    """Kernels that note which products they are asked for."""

    def __init__(self, kernels):
        self.kernels, self.asked = kernels, []

    def product(self, x, *rest, widened):
        self.asked.append((len(x), widened))
        return self.kernels.product(x, *rest, widened=widened)


@needs_kernels
@needs_pairs
def test_each_row_count_uses_the_product_chosen_for_it(monkeypatch):
    choice = (Kind.PAIRS, Kind.PAIRS, Kind.WIDENED, Kind.ONEDNN)
    monkeypatch.setattr(linear, "product_choice", lambda *_: choice)
    weight, x, bias = drawn(128, 96, 6, torch.bfloat16)
    if not linear.panels(weight, linear.pack(weight)):
        pytest.skip("oneDNN packs in another layout here")  # where there is AMX
    layer = Linear(weight, bias)
    assert layer.kinds == choice
    assert not layer.any_rows and not layer.slow_below_four
    spied = Spied(layer.kernels)
    monkeypatch.setattr(layer, "kernels", spied)
    found = {rows: layer(x[:rows]).float() for rows in (1, 2, 3, 6)}
    assert spied.asked == [(1, False), (2, True)]
    for rows, y in found.items():
        assert (y - found[6][:rows]).abs().max() < 2**-8 * (1 + found[6].abs().max())


@needs_kernels
def test_a_layer_knows_how_many_rows_are_multiplied_at_once():
    weight, _, bias = drawn(128, 96, 6, torch.bfloat16)
    found = kernels()
    with open("/proc/cpuinfo", encoding="utf-8") as told:
        has_amx = {"amx_tile", "amx_int8", "amx_bf16"} <= set(told.read().split())
    assert found.rows_at_once == (32 if has_amx else 1)
    assert QuantizedLinear([weight]).rows_at_once == found.rows_at_once
    for kinds, rows in (((Kind.WIDENED,), 1), ((Kind.WIDENED, Kind.PAIRS), found.rows_at_once)):
        assert HalfLinear([weight], bias, found, kinds).rows_at_once == rows
    layer = Linear(weight, bias)
    assert layer.rows_at_once == (found.rows_at_once if Kind.PAIRS in layer.kinds else 1)


def test_the_fastest_product_is_chosen_but_our_kernels_win_ties_and_near_ties(monkeypatch):
    monkeypatch.setattr(product_choice, "ROWS", (1, 2, 4))

    def chosen(*times):
        return product_choice.chosen([dict(zip(Kind, each, strict=True)) for each in times])

    pairs, widened, onednn = Kind
    assert chosen((100, 300, 200), (200, 199, 150), (250, 240, 230)) == [pairs, onednn, onednn]
    assert chosen((100, 101, 70), (100, 120, 200), (100, 90, 200)) == [onednn, widened, widened]
    assert chosen((100, 126, 200), (100, 90, 89), (95, 90, 89)) == [pairs, widened, widened]


def test_onednn_with_a_layout_of_its_own_gets_all_row_counts_or_none():
    pairs, widened, onednn = Kind

    def chosen(*times):
        found = [dict(zip(Kind, each, strict=True)) for each in times]
        return product_choice.chosen_alone(found)

    assert chosen((100, 90, 101), (100, 300, 80)) == [pairs, pairs], "at most 1.25 of its time"
    assert chosen((100, 70, 101), (100, 300, 80)) == [widened, pairs]
    assert chosen((100, 90, 200), (100, 300, 79)) == [onednn, onednn]


@needs_kernels
@needs_pairs
def test_the_choice_is_measured_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(product_choice, "ROUNDS", 1)
    monkeypatch.setattr(product_choice, "ROWS", (1, 3, 4))
    threads = torch.get_num_threads()
    library, asked = tmp_path / "kernels.so", []
    pairs, widened, onednn = Kind

    def measured(matrices, x):
        asked.append(len(x))
        assert all(taken > 0 for taken in real(matrices, x).values())
        fastest = {1: pairs, 3: widened, 4: onednn}[len(x)]
        return {kind: 100 if kind is fastest else 130 for kind in Kind}

    real = product_choice._fastest
    monkeypatch.setattr(product_choice, "_fastest", measured)
    want = (pairs, pairs, widened, widened, onednn)

    def choice(library=library):
        product_choice.product_choice.cache_clear()
        return product_choice.product_choice(library, linear._every, lambda: True)

    assert choice() == choice() == want
    assert asked == [1, 3, 4] and torch.get_num_threads() == threads
    kept = tmp_path / "kernels.products.json"
    version = torch.__version__
    for spoilt in ("{", "[]", f'{{"{version}": 7}}', f'{{"{version}": ["pairs"]}}'):
        kept.write_text(spoilt)
        assert choice() == want
    assert len(asked) == 15
    assert choice(tmp_path / "nowhere" / "kernels.so") == want, "not kept"
    product_choice.product_choice.cache_clear()


def test_weights_that_our_kernels_cannot_read_are_left_to_onednn(monkeypatch):
    weight, _, _ = drawn(128, 96, 1, torch.bfloat16)
    assert Linear(weight[:100]).kinds == (Kind.ONEDNN,), "its outputs fill no panel"
    assert Linear(weight.float()).kinds == (Kind.ONEDNN,)
    packed = linear.pack(weight)
    if packed is not None:
        swapped = weight.clone()
        swapped[-1, -1] += 1
        assert linear.panels(swapped, packed) == 0, "its numbers lie elsewhere"
    monkeypatch.setattr(linear, "kernels", lambda: None)
    assert Linear(weight).kinds == (Kind.ONEDNN,)


def test_our_kernels_can_be_switched_off(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "off")
    assert kernels.__wrapped__() is None and not capsys.readouterr().err


def test_one_line_says_why_our_kernels_are_missing(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert kernels.__wrapped__() is None
    why = "no C++ compiler" if cpu_flags() >= NEEDED else "x86"
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line and "torch's operators alone" in line
