"""Weights in bfloat16 in the order in which our kernels read them (native/products.cpp)."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from headway.executor.torch.cpu.library import Kernels

PANEL = 64  # outputs


def fits(outputs: int, inputs: int) -> bool:
    """Whether a weight of this shape can lie in panels."""
    return outputs % PANEL == 0 and inputs % 2 == 0


def joined(weights: Sequence[Tensor]) -> Tensor:
    """Weights [outputs, inputs], one below the other. A single one is not copied."""
    return weights[0] if len(weights) == 1 else torch.cat(list(weights))


class HalfMatrix:
    """A weight [outputs, inputs] for rows in float32, which its numbers are widened to, or in
    bfloat16."""

    __slots__ = ("_kernels", "_panels", "nbytes", "outputs")

    def __init__(self, weights: Sequence[Tensor], kernels: Kernels) -> None:
        """weights [outputs, inputs] in bfloat16, one below the other, together of a shape that
        fits. They are not kept."""
        self._panels = kernels.half_panels(weights)
        self._kernels, self.nbytes = kernels, self._panels.nbytes
        self.outputs = len(self._panels) * PANEL

    @property
    def part(self) -> tuple[int, int]:
        """Where the numbers lie: address, bytes."""
        return self._panels.data_ptr(), self._panels.nbytes

    @property
    def rows_at_once(self) -> int:
        """In bfloat16."""
        return self._kernels.rows_at_once

    def product(self, x: Tensor, bias: Tensor | None, widened: bool = True) -> Tensor:
        """x W^T + bias in x's dtype: [rows, inputs] -> [rows, outputs], for any number of rows.
        widened: rows in bfloat16 are, too."""
        widened = widened and x.dtype is torch.bfloat16
        return self._kernels.product(x, self._panels.data_ptr(), self.outputs, bias, widened)

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """The weights of some outputs: [n] -> [n, inputs]."""
        return rows_of(self._panels, numbers).to(dtype)


def rows_of(panels: Tensor, numbers: Tensor) -> Tensor:
    """Of panels [outputs / 64, inputs / 2, 64, 2] the rows of some outputs: [n] -> [n, inputs]."""
    return panels[numbers // PANEL, :, numbers % PANEL].flatten(1)


def panels_at(address: int, outputs: int, inputs: int) -> Tensor:
    """Panels that lie at this address, as a tensor. Whoever has them must keep them."""
    raw = (ctypes.c_int16 * (outputs * inputs)).from_address(address)
    found = torch.frombuffer(raw, dtype=torch.bfloat16)
    return found.view(outputs // PANEL, inputs // 2, PANEL, 2)
