"""Weights in bfloat16, laid out in panels as our kernels read them (native/products.cpp)."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from headway.executor.torch.cpu.library import Kernels

PANEL = 64  # outputs


def fits(outputs: int, inputs: int) -> bool:
    """Whether a weight of this shape can be laid out in panels."""
    return outputs % PANEL == 0 and inputs % 2 == 0


def joined(weights: Sequence[Tensor]) -> Tensor:
    """Weights [outputs, inputs], stacked along outputs. A single one is not copied."""
    return weights[0] if len(weights) == 1 else torch.cat(list(weights))


class HalfMatrix:
    """A bfloat16 weight [outputs, inputs]. For float32 rows it is widened to float32 in the
    product; for bfloat16 rows, widening is optional."""

    __slots__ = ("_kernels", "_panels", "nbytes", "outputs")

    def __init__(self, weights: Sequence[Tensor], kernels: Kernels) -> None:
        """weights: [outputs, inputs] each, in bfloat16; stacked along outputs, where their joint
        shape must fit panels. They are not kept."""
        self._panels = kernels.half_panels(weights)
        self._kernels, self.nbytes = kernels, self._panels.nbytes
        self.outputs = len(self._panels) * PANEL

    @property
    def part(self) -> tuple[int, int]:
        """The panels' address and bytes."""
        return self._panels.data_ptr(), self._panels.nbytes

    @property
    def rows_at_once(self) -> int:
        """As Linear.rows_at_once, for products in bfloat16."""
        return self._kernels.rows_at_once

    def product(self, x: Tensor, bias: Tensor | None, widened: bool = True) -> Tensor:
        """x W^T + bias in x's dtype: [rows, inputs] -> [rows, outputs], for any number of rows.
        widened: multiply bfloat16 rows in float32 too."""
        widened = widened and x.dtype is torch.bfloat16
        return self._kernels.product(x, self._panels.data_ptr(), self.outputs, bias, widened)

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """The weights of the outputs with these numbers: [n] -> [n, inputs]."""
        return rows_of(self._panels, numbers).to(dtype)


def rows_of(panels: Tensor, numbers: Tensor) -> Tensor:
    """Some outputs' weights in panels [outputs / 64, inputs / 2, 64, 2]: [n] -> [n, inputs]."""
    return panels[numbers // PANEL, :, numbers % PANEL].flatten(1)


def panels_at(address: int, outputs: int, inputs: int) -> Tensor:
    """The panels at this address, as a tensor. Their owner must keep the memory alive."""
    raw = (ctypes.c_int16 * (outputs * inputs)).from_address(address)
    found = torch.frombuffer(raw, dtype=torch.bfloat16)
    return found.view(outputs // PANEL, inputs // 2, PANEL, 2)
