"""Weights in 8 bits: one scale per output channel, and one per row of x in each product.

Both are symmetric: the largest magnitude becomes 127. A row's scale depends only on that row, so
its result does not depend on the batch, as it would with one scale for all rows. Sums of integer
products are exact. The scheme is that of LLM.int8() (Dettmers et al. 2022) without its 16-bit
outliers.
"""

from typing import Protocol

import torch
from torch import Tensor

LARGEST = 127
LEAST = 1e-30  # a row whose magnitudes are all smaller becomes zero
PIECE = 1 << 24  # weights quantised at once
SUMS = 1 << 20  # sums that torch's operators compute at once


class Int8Matrix(Protocol):
    """A weight [outputs, inputs] in 8 bits."""

    outputs: int
    nbytes: int

    @property
    def part(self) -> tuple[int, int]:
        """The weight's address and bytes."""
        ...

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + bias: [rows, inputs] -> [rows, outputs], for any number of rows. A row with NaN
        or infinity becomes NaN; other rows are not affected."""
        ...

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """The weights of the outputs with these numbers: [n] -> [n, inputs]."""
        ...


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize [rows, n] to int8 of the same shape, and each row's scale in float32.

    Rounds to nearest, ties to even. A row with NaN or infinity becomes zeros with a scale of NaN.
    """
    wide = x.float()
    most = wide.abs().amax(dim=1)
    finite = most.isfinite()
    kept = finite & (most >= LEAST)
    times = torch.tensor(LARGEST, dtype=wide.dtype) / most  # int / tensor would round twice
    found = (wide * times.unsqueeze(1)).round()
    scales = torch.where(kept, most / LARGEST, torch.where(finite, 0.0, torch.nan))
    return found.where(kept.unsqueeze(1), 0).to(torch.int8), scales


class PlainInt8:
    """Int8Matrix by torch's operators: used without our kernels, and their reference."""

    def __init__(self, weight: Tensor) -> None:
        """weight [outputs, inputs], in any floating dtype."""
        self.outputs, inputs = weight.shape
        self.weight = torch.empty(weight.shape, dtype=torch.int8)
        self.scales = torch.empty(self.outputs)
        step = max(1, PIECE // inputs)
        for begin in range(0, self.outputs, step):
            part = slice(begin, begin + step)
            self.weight[part], self.scales[part] = quantize(weight[part])
        self.nbytes = self.weight.nbytes + self.scales.nbytes

    @property
    def part(self) -> tuple[int, int]:
        return self.weight.data_ptr(), self.weight.nbytes

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        y = x.new_empty(len(x), self.outputs)
        step = max(1, SUMS // max(x.shape[1], self.outputs))
        for begin in range(0, len(x), step):  # the memory plan does not include these wide sums
            part = slice(begin, begin + step)
            numbers, scales = quantize(x[part])
            found = torch._int_mm(numbers, self.weight.t()).float()
            found = found.mul_(scales.unsqueeze(1)).mul_(self.scales)
            y[part] = found if bias is None else found.add_(bias)
        return y

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        return (self.weight[numbers] * self.scales[numbers].unsqueeze(1)).to(dtype)
