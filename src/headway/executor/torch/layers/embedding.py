"""Token embeddings: from a matrix of their own, or from the tied head's."""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.cpu.half import HalfMatrix, panels_at, rows_of
from headway.executor.torch.cpu.int8 import Int8Matrix
from headway.executor.torch.layers.linear import Linear


class Embedding:
    """Token embeddings from a matrix [vocab, hidden]."""

    __slots__ = ("device", "dtype", "weight")

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.dtype, self.device = weight, weight.dtype, weight.device

    def __call__(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, hidden]."""
        return F.embedding(tokens, self.weight)


class PackedRows:
    """The weight rows of a Linear whose packed weight is laid out in panels."""

    def __init__(self, linear: Linear, inputs: int) -> None:
        self._linear = linear  # keeps the panels' memory alive
        self._panels = panels_at(linear.panels, linear.outputs, inputs)

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """The weights of the outputs with these numbers: [n] -> [n, inputs]."""
        return rows_of(self._panels, numbers).to(dtype)


class SharedEmbedding:
    """Token embeddings read from the tied head's weight, which is kept only once: in panels
    (HalfMatrix, PackedRows) or in 8 bits (Int8Matrix)."""

    __slots__ = ("device", "dtype", "matrix")

    def __init__(self, matrix: Int8Matrix | HalfMatrix | PackedRows, dtype: torch.dtype) -> None:
        """dtype: of the embeddings."""
        self.matrix, self.dtype, self.device = matrix, dtype, torch.device("cpu")

    def __call__(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, hidden]."""
        return self.matrix.rows(tokens, self.dtype)
