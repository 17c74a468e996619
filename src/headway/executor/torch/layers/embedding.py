"""The vectors of tokens: of a matrix of their own, or of the tied head's."""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.cpu.half import HalfMatrix, panels_at, rows_of
from headway.executor.torch.cpu.int8 import Int8Matrix
from headway.executor.torch.layers.linear import Linear


class Embedding:
    """A matrix [vocab, hidden]."""

    __slots__ = ("device", "dtype", "weight")

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.dtype, self.device = weight, weight.dtype, weight.device

    def __call__(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, hidden]."""
        return F.embedding(tokens, self.weight)


class PackedRows:
    """The rows of a Linear whose packed weight lies in panels."""

    def __init__(self, linear: Linear, inputs: int) -> None:
        self._linear = linear  # it keeps the memory
        self._panels = panels_at(linear.panels, linear.outputs, inputs)

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """The weights of some outputs: [n] -> [n, inputs]."""
        return rows_of(self._panels, numbers).to(dtype)


class SharedEmbedding:
    """The rows of a tied head's weight, which is kept in another order (HalfMatrix) or in 8 bits
    (Int8Matrix): nothing is kept twice."""

    __slots__ = ("device", "dtype", "matrix")

    def __init__(self, matrix: Int8Matrix | HalfMatrix | PackedRows, dtype: torch.dtype) -> None:
        """dtype: of the vectors."""
        self.matrix, self.dtype, self.device = matrix, dtype, torch.device("cpu")

    def __call__(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, hidden]."""
        return self.matrix.rows(tokens, self.dtype)
