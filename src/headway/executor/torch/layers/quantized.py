"""QuantizedLinear: a linear layer on a CPU with its weight in 8 bits."""

from collections.abc import Sequence

from torch import Tensor

from headway.executor.torch.cpu.half import joined
from headway.executor.torch.cpu.int8 import Int8Matrix, PlainInt8
from headway.executor.torch.cpu.library import kernels


class QuantizedLinear:
    """y = x W^T + b with W and each row of x in 8 bits (cpu/int8.py). Used like a Linear.

    A row gives the same bits alone and in any batch.
    """

    __slots__ = ("any_rows", "bias", "matrix", "nbytes", "outputs", "rows_at_once")
    weight = None
    packed = None
    slow_below_four = False

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None = None) -> None:
        """weights: [outputs, inputs] each, in any floating dtype; stacked along outputs and not
        kept. bias: [all outputs], in the dtype of x."""
        found = kernels()
        self.matrix: Int8Matrix = (
            PlainInt8(joined(weights)) if found is None else found.int8.pack(weights)
        )
        self.any_rows = found is not None
        self.rows_at_once = 1 if found is None else found.rows_at_once
        self.bias, self.outputs = bias, self.matrix.outputs
        self.nbytes = self.matrix.nbytes + (0 if bias is None else bias.nbytes)

    @property
    def part(self) -> tuple[int, int]:
        """As Linear.part."""
        return self.matrix.part

    def __call__(self, x: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs], n >= 1."""
        return self.matrix.product(x, self.bias)
