"""PanelInt8: a weight in 8 bits, laid out as our C++ kernels read it (native/int8.cpp)."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headway.executor.torch.cpu.tape import Kernel

PANEL, FOUR = 64, 4  # outputs of a panel, inputs of a group
NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class Int8Kernels:
    """The library's int8 functions. They use as many threads as torch."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._pack = {
            dtype: _declared(
                library[f"int8_pack_{name}"], [_POINTER, *[_COUNT] * 2, *[_POINTER] * 3]
            )
            for dtype, name in NAMES.items()
        }
        self._product = {
            dtype: Kernel(
                library, f"int8_product_{name}", [_POINTER, *[_COUNT] * 3, *[_POINTER] * 6, _COUNT]
            )
            for dtype, name in NAMES.items()
        }

        self._row_bytes = library.int8_row_bytes
        self._row_bytes.argtypes, self._row_bytes.restype = [_COUNT], _COUNT

    def pack(self, weights: Sequence[Tensor]) -> "PanelInt8":
        """Quantize weights, [outputs, inputs] each in any floating dtype, stacked along outputs."""
        parts = [each if each.dtype in NAMES else each.float() for each in weights]
        if any(len(part) % PANEL for part in parts[:-1]):
            parts = [torch.cat(parts)]
        outputs, inputs = sum(map(len, parts)), parts[0].shape[1]
        panels = torch.empty(
            -(-outputs // PANEL), -(-inputs // FOUR), PANEL, FOUR, dtype=torch.int8
        )
        scales = torch.empty(len(panels) * PANEL, dtype=torch.float32)
        totals, at = torch.empty(len(scales), dtype=torch.int32), 0
        for part in parts:
            part, first = part.contiguous(), at // PANEL
            places = (each.data_ptr() for each in (panels[first:], scales[at:], totals[at:]))
            shape = len(part), inputs
            self._pack[part.dtype](part.data_ptr(), *shape, *places, torch.get_num_threads())
            at += len(part)
        return PanelInt8(self, outputs, inputs, panels, scales, totals)

    def product(self, x: Tensor, weights: "PanelInt8", bias: Tensor | None) -> Tensor:
        """As Int8Matrix.product."""
        assert bias is None or bias.dtype is x.dtype
        x = x.contiguous()
        rows, inputs = x.shape
        assert inputs == weights.inputs
        y = x.new_empty(rows, weights.outputs)
        work = torch.empty(rows, self._row_bytes(inputs), dtype=torch.uint8)
        offset = None if bias is None else bias.data_ptr()
        self._product[x.dtype](
            *(x.data_ptr(), rows, inputs, weights.outputs, *weights.places),
            *(offset, y.data_ptr(), work.data_ptr(), torch.get_num_threads()),
        )
        return y


class PanelInt8:
    """An Int8Matrix in panels: int8 [ceil(outputs / 64), ceil(inputs / 4), 64, 4]. scales and
    totals hold each output's scale and sum of weights, padded to whole panels."""

    def __init__(
        self,
        kernels: Int8Kernels,
        outputs: int,
        inputs: int,
        panels: Tensor,
        scales: Tensor,
        totals: Tensor,
    ) -> None:
        self.kernels, self.outputs, self.inputs = kernels, outputs, inputs
        self.panels, self.scales, self.totals = panels, scales, totals
        self.places = panels.data_ptr(), scales.data_ptr(), totals.data_ptr()
        self.nbytes = panels.nbytes + scales.nbytes + totals.nbytes

    @property
    def part(self) -> tuple[int, int]:
        return self.panels.data_ptr(), self.panels.nbytes

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return self.kernels.product(x, self, bias)

    def rows(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        fours = self.panels.view(torch.int32).squeeze(-1)  # [panels, groups of inputs, outputs]
        found = fours[numbers // PANEL, :, numbers % PANEL].view(torch.int8)[:, : self.inputs]
        return (found * self.scales[numbers].unsqueeze(1)).to(dtype)


def _declared(function: Any, arguments: list[Any]) -> Any:
    """Declare a function that takes these arguments, then the threads, and returns nothing."""
    function.argtypes, function.restype = [*arguments, _COUNT], None
    return function
