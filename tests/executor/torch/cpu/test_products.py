"""Products of a few rows by our own kernel: right, and each row by itself."""

import pytest
import torch

from headway.executor.torch.config.processor import cpu_flags
from headway.executor.torch.cpu.build import NEEDED, SWITCH
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.layers import few_rows, linear
from headway.executor.torch.layers.linear import Linear

needs_kernels = pytest.mark.skipif(kernels() is None, reason="there are no kernels here")
SHAPES = [(64, 2), (128, 96), (320, 1_026), (64, 2_050)]  # of one panel, of several, of two chunks
UNIT = {torch.float32: 2**-23, torch.bfloat16: 2**-8}


def drawn(outputs, inputs, rows, dtype):
    stream = torch.Generator().manual_seed(outputs * inputs + rows)
    weight = (torch.randn(outputs, inputs, generator=stream) / inputs**0.5).bfloat16()
    x = torch.randn(rows, inputs, generator=stream)
    x[-1, 0] = 300.0  # an outlier, as in real activations
    return weight, x.to(dtype), torch.randn(outputs, generator=stream).to(dtype)


def in_panels(weight):
    """As products.cpp draws it."""
    outputs, inputs = weight.shape
    return weight.view(outputs // 64, 64, inputs // 2, 2).transpose(1, 2).contiguous()


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("outputs, inputs", SHAPES)
@pytest.mark.parametrize("rows", [1, 5, 6, 7, 13, 32])
def test_a_product_is_right_and_a_row_alone_has_the_same_bits(built, outputs, inputs, rows, dtype):
    found = built
    if dtype not in found.dtypes:
        pytest.skip("this processor has no products in bfloat16")
    weight, x, bias = drawn(outputs, inputs, rows, dtype)
    panels = in_panels(weight)
    y = found.product(x, panels.data_ptr(), outputs, bias)
    exact = x.double() @ weight.double().T + bias.double()
    # Of the sum's rounding: at most one unit for each term, and one of the result.
    most = (x.double().abs() @ weight.double().abs().T) * inputs * 2**-23 + exact.abs() * UNIT[
        dtype
    ]
    assert y.dtype is dtype and ((y.double() - exact).abs() <= most + 1e-6).all()
    plain = found.product(x, panels.data_ptr(), outputs, None)
    for row in {0, rows // 2, rows - 1}:
        alone = found.product(x[row : row + 1], panels.data_ptr(), outputs, None)
        assert torch.equal(alone[0], plain[row])


@needs_kernels
def test_a_row_that_is_not_finite_is_alone_with_it():
    weight, x, _ = drawn(128, 96, 7, torch.float32)
    panels = in_panels(weight)
    found = kernels().product(x, panels.data_ptr(), 128, None)
    x[3, 5] = float("nan")
    spoilt = kernels().product(x, panels.data_ptr(), 128, None)
    others = [0, 1, 2, 4, 5, 6]
    assert spoilt[3].isnan().all() and torch.equal(spoilt[others], found[others])


@needs_kernels
@pytest.mark.skipif("avx512_bf16" not in cpu_flags(), reason="no products in bfloat16")
def test_few_rows_go_to_the_kernel_and_more_to_onednn(monkeypatch):
    monkeypatch.setattr(linear, "few_rows", lambda library, made: 5)
    weight, x, bias = drawn(128, 96, 6, torch.bfloat16)
    layer, asked = Linear(weight, bias), []
    assert layer.most_rows == 5, "oneDNN's layout is the one that the kernel reads"
    monkeypatch.setattr(layer, "kernels", Spied(layer.kernels, asked))
    more, few = layer(x), layer(x[:5])
    assert asked == [5]
    assert (few.float() - more[:5].float()).abs().max() < 2**-8 * (1 + more.float().abs().max())


@needs_kernels
@pytest.mark.skipif("avx512_bf16" not in cpu_flags(), reason="no products in bfloat16")
def test_how_many_rows_is_measured_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(few_rows, "ROUNDS", 1)
    monkeypatch.setattr(few_rows, "ROWS", (1, 2, 3))
    threads = torch.get_num_threads()
    library, asked = tmp_path / "kernels.so", []

    def measured(matrices, x):
        asked.append(len(x))
        ours, theirs = real(matrices, x)
        assert ours > 0 and theirs > 0
        return (103, 100) if len(x) == 3 else (102, 100)

    real = few_rows._fastest
    monkeypatch.setattr(few_rows, "_fastest", measured)
    assert few_rows.few_rows(library, linear._both) == 2
    assert few_rows.few_rows(library, linear._both) == 2
    few_rows._few_rows.cache_clear()
    assert few_rows.few_rows(library, linear._both) == 2
    assert asked == [1, 2, 3] and torch.get_num_threads() == threads

    kept = tmp_path / "kernels.rows.json"
    for spoilt in ("{", "[]"):
        few_rows._few_rows.cache_clear()
        kept.write_text(spoilt)
        assert few_rows.few_rows(library, linear._both) == 2
    assert len(asked) == 9
    few_rows._few_rows.cache_clear()
    assert few_rows.few_rows(tmp_path / "nowhere" / "kernels.so", linear._both) == 2, "not kept"
    few_rows._few_rows.cache_clear()


class Spied:
    def __init__(self, kernels, asked):
        self.kernels, self.asked = kernels, asked

    def product(self, x, *rest):
        self.asked.append(len(x))
        return self.kernels.product(x, *rest)


def test_another_layout_or_none_is_left_to_onednn(monkeypatch):
    weight, _, _ = drawn(128, 96, 1, torch.bfloat16)
    assert Linear(weight[:100]).most_rows == 0, "its outputs fill no panel"
    assert Linear(weight.float()).most_rows == 0
    packed = linear.pack(weight)
    if packed is not None:
        swapped = weight.clone()
        swapped[-1, -1] += 1
        assert linear.panels(swapped, packed) == 0, "its numbers lie elsewhere"
    monkeypatch.setattr(linear, "kernels", lambda: None)
    assert Linear(weight).most_rows == 0


def test_they_can_be_switched_off(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "off")
    assert kernels.__wrapped__() is None and not capsys.readouterr().err


def test_where_they_cannot_be_had_a_line_says_why(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert kernels.__wrapped__() is None
    why = "no C++ compiler" if cpu_flags() >= NEEDED else "x86"
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line and "torch's operators alone" in line
