"""kernels: builds and loads the C++ kernels and offers them as functions of tensors."""

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.executor.torch.cpu.build import NoKernelsError, compiled, is_off
from headway.executor.torch.cpu.int8_panels import PANEL, Int8Kernels
from headway.executor.torch.cpu.tape import Kernel

_POINTER, _COUNT, _FLAG, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_ARGUMENTS = {
    "add_norm": [
        *(_FLAG, _FLAG, _POINTER, _COUNT, _POINTER, _POINTER, _POINTER, _COUNT, _COUNT, _COUNT),
        *(_POINTER, _POINTER, _NUMBER, _NUMBER, _COUNT),
    ],
    "take_in": [
        *(_FLAG, _FLAG, _POINTER, _COUNT, _POINTER, _POINTER, _POINTER, _NUMBER, _POINTER),
        *(_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _COUNT),
    ],
    "gate_up": [_FLAG, _POINTER, _POINTER, _COUNT, _COUNT, _FLAG, _COUNT],
    "attend": [
        *(_FLAG, _POINTER, _POINTER, _COUNT, *[_POINTER] * 3, _NUMBER, _NUMBER, _COUNT),
        *(_POINTER, _COUNT),
    ],
}  # described in native/
_LIKELIEST: list[Any] = [_FLAG, _POINTER, _COUNT, _COUNT, _POINTER, _POINTER, _COUNT]


class Kernels:
    """The library's functions. They use as many threads as torch (torch.set_num_threads)."""

    def __init__(self, file: Path) -> None:
        """Load the library. Raises OSError if that fails."""
        self.file = file
        library = ctypes.CDLL(str(file))  # uses the OpenMP runtime that torch has loaded
        self.int8 = Int8Kernels(library)
        product = [_POINTER, *[_COUNT] * 3, *[_POINTER] * 4, _COUNT]
        self._products = {torch.float32: Kernel(library, "product_float32", product)}
        if library.has_bfloat16():
            self._products[torch.bfloat16] = Kernel(library, "product_bfloat16", product)
        self._widened = Kernel(library, "product_widened", product)
        self.rows_at_once: int = library.rows_at_once()  # of products in bfloat16 or in 8 bits
        # Only `attend` has a result: whether it supports the head_dim.
        self.add_norm, self.take_in, self.gate_up, self.attend = (
            Kernel(library, name, arguments, _FLAG) for name, arguments in _ARGUMENTS.items()
        )
        self._half_pack: Callable[..., None] = library.half_pack
        pack: list[Any] = [_POINTER, _COUNT, _COUNT, _POINTER, _COUNT]
        self._half_pack.argtypes, self._half_pack.restype = pack, None
        self._likeliest: Callable[..., None] = library.find_likeliest
        self._likeliest.argtypes, self._likeliest.restype = _LIKELIEST, None
        self.play: Callable[[int, int, int], None] = library.play
        self.play.argtypes, self.play.restype = [_POINTER, _COUNT, _COUNT], None

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        """The dtypes of rows that it multiplies without widening."""
        return frozenset(self._products)

    def half_panels(self, weights: Sequence[Tensor]) -> Tensor:
        """Lay out weights, [outputs, inputs] each in bfloat16, as the products read them: panels
        [outputs / 64, inputs / 2, 64, 2]. inputs must be even, and the sum of all outputs a
        multiple of 64."""
        parts = list(weights)
        if any(len(part) % PANEL for part in parts):
            parts = [torch.cat(parts)]
        inputs = parts[0].shape[1]
        panels = sum(len(part) for part in parts) // PANEL
        found, at = parts[0].new_empty(panels, inputs // 2, PANEL, 2), 0
        for part in parts:
            part, to = part.contiguous(), found[at:].data_ptr()
            self._half_pack(part.data_ptr(), len(part), inputs, to, torch.get_num_threads())
            at += len(part) // PANEL
        return found

    def product(
        self, x: Tensor, weights: int, outputs: int, bias: Tensor | None, widened: bool = False
    ) -> Tensor:
        """x W^T + bias: [rows, inputs] -> [rows, outputs].

        weights: the address of panels in bfloat16 (products.cpp). inputs must be even and outputs
        a multiple of 64; bias [outputs] has x's dtype. widened: x is bfloat16 but is multiplied in
        float32.
        """
        assert bias is None or bias.dtype is x.dtype
        rows, inputs = x.shape
        y = x.new_empty(rows, outputs)
        multiply = self._widened if widened else self._products[x.dtype]
        x, offset = x.contiguous(), None if bias is None else bias.data_ptr()
        pairs = x.dtype is torch.bfloat16 and not widened
        work = torch.empty(0 if pairs else rows * inputs, dtype=torch.float32)
        # torch keeps this number per Python thread, and sets OpenMP's when it is read.
        threads = torch.get_num_threads()
        places = weights, offset, y.data_ptr(), work.data_ptr()
        multiply(x.data_ptr(), rows, inputs, outputs, *places, threads)
        return y

    def likeliest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The index of each row's largest logit, and whether the row's logits are all finite:
        [n, vocab] in float32 or bfloat16 -> int64 [n] (the first of equals) and bool [n]. In a row
        that is not finite, the index is arbitrary."""
        rows, vocab = logits.shape
        logits = logits.contiguous()
        at, finite = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.bool)
        narrow, threads = logits.dtype is torch.bfloat16, torch.get_num_threads()
        found = at.data_ptr(), finite.data_ptr()
        self._likeliest(narrow, logits.data_ptr(), rows, vocab, *found, threads)
        return at, finite


@cache
def kernels() -> Kernels | None:
    """The kernels, built on the first call. None if they are switched off, or not available: then
    a line on stderr says why. Without them, torch computes everything."""
    if is_off():
        return None
    try:
        return Kernels(compiled())
    except (NoKernelsError, OSError) as error:
        print(f"headway: torch's operators alone are used: {error}", file=sys.stderr, flush=True)
        return None
