"""One linear layer, its weight packed for the CPU where that pays."""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.cpu.half import PANEL, HalfMatrix, fits, joined
from headway.executor.torch.cpu.library import Kernels, kernels
from headway.executor.torch.layers.product_choice import Kind, Products, product_choice
from headway.executor.torch.layers.quantized import QuantizedLinear

# Rows for which oneDNN chooses the packed layout. One layout serves every number of rows; of
# the hints tried (none, 1, 16, 64, 256) this one was best or near it from 1 row to 256.
ROWS_HINT = 64
SAMPLES = 4_096  # numbers that are compared


def pack(weight: Tensor) -> Tensor | None:
    """The weight [outputs, inputs] in oneDNN's own layout, or None where that cannot be had.

    F.linear reorders the weight anew in every call; packing does it once. Measured on the
    Qwen2.5-0.5B shapes, one thread of a Zen 4, time of F.linear over time of packed for all
    GEMMs of a step with 1/4/8/32/64/256 rows: bfloat16 1.47 1.47 1.44 1.34 1.53 1.28, float32
    0.98 1.60 1.93 1.37 1.19 1.06. The idea is that of torch.compile's CPU weight prepacking.
    """
    ops = torch.ops.mkldnn
    if weight.device.type != "cpu" or not _has_onednn():
        return None
    if weight.dtype is torch.bfloat16 and not has_onednn_bfloat16():
        return None
    if weight.dtype not in (torch.bfloat16, torch.float32):
        return None
    packed: Tensor = ops._reorder_linear_weight(weight.contiguous(), ROWS_HINT)
    return packed


def _has_onednn() -> bool:
    """Whether this torch has it, with the operators that are used here."""
    ops = torch.ops.mkldnn
    named = hasattr(ops, "_reorder_linear_weight") and hasattr(ops, "_linear_pointwise")
    return torch._C._has_mkldnn and named


def has_onednn_bfloat16() -> bool:
    """Whether oneDNN multiplies in bfloat16 here. Without AVX-512 it does not."""
    return _has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def panels(weight: Tensor, packed: Tensor) -> int:
    """The address of oneDNN's packed weight, if it lies in the panels that our kernels read
    (cpu/native/products.cpp); else 0. weight [outputs, inputs], packed: as `pack` has made it.

    oneDNN does not promise its layout, so numbers of all corners are compared.
    """
    outputs, inputs = weight.shape
    ops = torch.ops.mkldnn
    if weight.dtype is not torch.bfloat16 or not fits(outputs, inputs):
        return 0
    if ops._nbytes(packed) != weight.nbytes:
        return 0  # padded
    address: int = ops.data_ptr(packed)
    raw = np.ctypeslib.as_array((ctypes.c_int16 * weight.numel()).from_address(address))
    found = raw.reshape(outputs // PANEL, inputs // 2, PANEL, 2)
    plain = weight.detach().contiguous().view(torch.int16).numpy()
    tried = np.arange(0, outputs * inputs, max(1, outputs * inputs // SAMPLES))
    n, k = np.divmod(np.append(tried, outputs * inputs - 1), inputs)
    same = found[n // PANEL, k // 2, n % PANEL, k % 2] == plain[n, k]
    return address if same.all() else 0


def _by_onednn(x: Tensor, packed: Tensor | None, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y


def _every(weight: Tensor) -> Products:
    """All products with this weight, in a shape that fits panels."""
    packed, found = pack(weight), kernels()
    assert packed is not None and found is not None
    ours = HalfMatrix([weight], found)
    products: dict[Kind, Callable[[Tensor], object]] = {
        Kind.PAIRS: lambda x: ours.product(x, None, widened=False),
        Kind.WIDENED: lambda x: ours.product(x, None, widened=True),
        Kind.ONEDNN: lambda x: _by_onednn(x, packed, None),
    }
    if weight.dtype not in found.dtypes:
        del products[Kind.PAIRS]
    return products


def _one_layout() -> bool:
    """Whether oneDNN packs weights as our kernels read them."""
    weight = torch.arange(2 * PANEL * PANEL).view(2 * PANEL, PANEL).to(torch.bfloat16)
    packed = pack(weight)
    return packed is not None and panels(weight, packed) != 0


class Linear:
    """y = x W^T + b. Each row of y depends on its row of x alone (to rounding).

    On a CPU in bfloat16 each number of rows is multiplied by oneDNN, or by one of our own kernels
    where it is the fastest and oneDNN's packed weight lies as it reads it.
    """

    __slots__ = ("bias", "kernels", "kinds", "nbytes", "outputs", "packed", "panels", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None, packing: bool = True) -> None:
        """weight [outputs, inputs], bias [outputs]. The plain weight is kept only if unpacked."""
        self.bias, self.outputs = bias, len(weight)
        self.packed = pack(weight) if packing else None
        self.weight = weight if self.packed is None else None
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)
        self.kinds: tuple[Kind, ...] = (Kind.ONEDNN,)
        self.panels = 0
        self.kernels: Kernels | None = None
        if self.packed is not None and weight.dtype is torch.bfloat16:
            self._find_kernels(weight, self.packed)

    def _find_kernels(self, weight: Tensor, packed: Tensor) -> None:
        found = kernels()
        if found is not None:
            self.panels, self.kernels = panels(weight, packed), found
            self.kinds = (
                product_choice(found.file, _every, _one_layout) if self.panels else self.kinds
            )

    @property
    def any_rows(self) -> bool:
        """Whether it computes any number of them at once. oneDNN prepares each by itself."""
        return Kind.ONEDNN not in self.kinds

    @property
    def one_as_slow_as_four(self) -> bool:
        """Whether a row alone takes as long as four: by oneDNN, but not by our kernels."""
        return self.packed is not None and self.kinds[0] is Kind.ONEDNN

    @property
    def rows_at_once(self) -> int:
        """Rows that are multiplied at once, whether there are as many or not."""
        return self.kernels.rows_at_once if self.kernels and Kind.PAIRS in self.kinds else 1

    @property
    def part(self) -> tuple[int, int]:
        """Where the weight lies: address, bytes."""
        if self.weight is not None:
            return self.weight.data_ptr(), self.weight.nbytes
        ops = torch.ops.mkldnn
        return ops.data_ptr(self.packed), ops._nbytes(self.packed)

    def __call__(self, x: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs], n >= 1."""
        if self.weight is not None:
            return F.linear(x, self.weight, self.bias)
        kind = self.kinds[min(len(x), len(self.kinds) - 1)]
        if self.kernels is None or kind is Kind.ONEDNN:
            return _by_onednn(x, self.packed, self.bias)
        return self.kernels.product(
            x, self.panels, self.outputs, self.bias, widened=kind is Kind.WIDENED
        )


class HalfLinear:
    """A Linear on a CPU by our own kernels alone, whose weight stays in bfloat16.

    Its products are those of the widened weight, to rounding. A row alone has the same bits as the
    row in any batch that the same kernel multiplies.
    """

    __slots__ = ("bias", "kinds", "matrix", "nbytes", "outputs")
    weight, packed = None, None
    any_rows, one_as_slow_as_four = True, False  # by our kernels

    def __init__(
        self,
        weights: Sequence[Tensor],
        bias: Tensor | None,
        kernels: Kernels,
        kinds: tuple[Kind, ...] = (Kind.WIDENED,),
    ) -> None:
        """weights [outputs, inputs] in bfloat16, one below the other, which are not kept; bias
        [all outputs] in the rows' dtype. kinds: of ours, as product_choice gives them, for rows in
        bfloat16; rows in float32 have one kernel."""
        self.matrix, self.bias, self.kinds = HalfMatrix(weights, kernels), bias, kinds
        self.outputs = self.matrix.outputs
        self.nbytes = self.matrix.nbytes + (0 if bias is None else bias.nbytes)

    @property
    def rows_at_once(self) -> int:
        """As Linear's."""
        return self.matrix.rows_at_once if Kind.PAIRS in self.kinds else 1

    @property
    def part(self) -> tuple[int, int]:
        """As Linear.part."""
        return self.matrix.part

    def __call__(self, x: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs], n >= 1."""
        kind = self.kinds[min(len(x), len(self.kinds) - 1)]
        return self.matrix.product(x, self.bias, widened=kind is Kind.WIDENED)


def linear(
    weights: Sequence[Tensor], bias: Tensor | None, dtype: torch.dtype
) -> Linear | HalfLinear:
    """A linear layer for rows in this dtype. weights [outputs, inputs]: as they are stored, one
    below the other."""
    outputs, (_, inputs) = sum(map(len, weights)), weights[0].shape
    halves = dtype is torch.bfloat16 or all(each.dtype is torch.bfloat16 for each in weights)
    on_cpu = all(each.device.type == "cpu" for each in weights)
    if halves and on_cpu and fits(outputs, inputs) and (found := kernels()):
        kinds: tuple[Kind, ...] = (Kind.WIDENED,)
        if dtype is torch.bfloat16 and has_onednn_bfloat16():
            kinds = product_choice(found.file, _every, _one_layout)
        if Kind.ONEDNN not in kinds:
            return HalfLinear([each.to(torch.bfloat16) for each in weights], bias, found, kinds)
    return Linear(joined(weights).to(dtype), bias)


AnyLinear = Linear | HalfLinear | QuantizedLinear
