"""The vectors of tokens: as they are stored, or in 8 bits."""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.cpu.int8 import Int8Matrix


class Embedding:
    """A matrix [vocab, hidden]."""

    __slots__ = ("device", "dtype", "weight")

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.dtype, self.device = weight, weight.dtype, weight.device

    def __call__(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, hidden]."""
        return F.embedding(tokens, self.weight)


class QuantizedEmbedding:
    """A matrix in 8 bits. A tied head multiplies with the same one, so nothing is kept twice."""

    __slots__ = ("device", "dtype", "matrix")

    def __init__(self, matrix: Int8Matrix, dtype: torch.dtype) -> None:
        """dtype: of the vectors."""
        self.matrix, self.dtype, self.device = matrix, dtype, torch.device("cpu")

    def __call__(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, hidden]."""
        return self.matrix.rows(tokens, self.dtype)
