"""Products with int8 weights: the same bits by every kernel, alone and in a batch."""

import pytest
import torch

from headway.executor.torch.cpu.int8 import LARGEST, PlainInt8, quantize

DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [(1, 1), (65, 7), (64, 896), (130, 4_099), (200, 1_030)]  # outputs, inputs
ROWS = [1, 2, 3, 4, 5, 13, 16, 33, 300]


@pytest.fixture
def packing(built):
    return built.int8


def drawn(outputs, inputs, rows, dtype):
    stream = torch.Generator().manual_seed(outputs * inputs + rows)
    weight = (torch.randn(outputs, inputs, generator=stream) / inputs**0.5).to(dtype)
    x = torch.randn(rows, inputs, generator=stream)
    x[-1, 0] = 300.0  # an outlier, as in real activations
    return weight, x.to(dtype), torch.randn(outputs, generator=stream).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("rows", ROWS)
def test_a_product_has_the_bits_of_the_reference_and_of_each_row_alone(
    packing, outputs, inputs, rows, dtype
):
    weight, x, bias = drawn(outputs, inputs, rows, dtype)
    matrix, plain = packing.pack([weight]), PlainInt8(weight)
    for offset in (bias, None):
        found = matrix.product(x, offset)
        assert found.dtype is dtype and torch.equal(found, plain.product(x, offset))
        for row in {0, rows // 2, rows - 1}:
            assert torch.equal(matrix.product(x[row : row + 1], offset)[0], found[row])
    numbers = torch.arange(outputs - 1, -1, -3)
    assert torch.equal(matrix.rows(numbers, dtype), plain.rows(numbers, dtype))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads_gives_the_same_product(packing, threads):
    weight, x, bias = drawn(300, 260, 9, torch.bfloat16)  # five panels
    matrix = packing.pack([weight])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = [packing.product(x, matrix, bias) for _ in range(50)]
    finally:
        torch.set_num_threads(before)
    expected = PlainInt8(weight).product(x, bias)
    assert all(torch.equal(each, expected) for each in found)


@pytest.mark.parametrize("spoiler", [float("nan"), float("inf"), -float("inf")])
def test_a_non_finite_row_does_not_change_other_rows(packing, spoiler):
    weight, x, bias = drawn(130, 99, 7, torch.bfloat16)
    for matrix in (packing.pack([weight]), PlainInt8(weight)):
        found = matrix.product(x, bias)
        spoilt = x.clone()
        spoilt[3, 5] = spoiler
        again, others = matrix.product(spoilt, bias), [0, 1, 2, 4, 5, 6]
        assert again[3].isnan().all() and torch.equal(again[others], found[others])


def test_rows_of_zeros_or_denormals_give_only_the_bias(packing):
    weight, _, bias = drawn(70, 33, 1, torch.float32)
    x = torch.zeros(2, 33)
    x[1] = 1e-40
    for matrix in (packing.pack([weight]), PlainInt8(weight)):
        assert torch.equal(matrix.product(x, bias), bias.expand(2, -1))


def test_the_largest_sums_neither_saturate_nor_overflow(packing):
    inputs = 16_384
    weight, x = torch.ones(64, inputs), torch.ones(3, inputs)
    weight[1], x[1] = -1, -1
    found = packing.pack([weight]).product(x, None)
    assert torch.equal(found, x @ weight.T) and found.abs().min() == inputs


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quantisation_is_off_by_at_most_half_a_step_of_the_row(dtype):
    _, x, _ = drawn(1, 500, 9, dtype)
    numbers, scales = quantize(x)
    assert numbers.abs().amax(dim=1).tolist() == [LARGEST] * 9
    off = (numbers * scales.unsqueeze(1) - x.float()).abs().amax(dim=1)
    assert (off <= 0.5001 * scales).all()
    assert torch.allclose(scales, x.float().abs().amax(dim=1) / LARGEST)


def test_packed_bytes_count_padding_scales_and_totals(packing):
    matrix = packing.pack([torch.ones(65, 7)])
    assert matrix.nbytes == 128 * 8 + 128 * (4 + 4)
    assert packing.pack([torch.ones(64, 8, dtype=torch.float16)]).nbytes == 64 * (8 + 8)


@pytest.mark.parametrize("outputs", [(64, 128, 30), (64, 30, 2), (1, 1)])
def test_matrices_packed_together_equal_their_concatenation(built, outputs):
    weights = [torch.randn(each, 30) for each in outputs]
    found, whole = built.int8.pack(weights), built.int8.pack([torch.cat(weights)])
    assert found.outputs == whole.outputs == sum(outputs)
    for part in ("panels", "scales", "totals"):
        assert torch.equal(getattr(found, part), getattr(whole, part))
