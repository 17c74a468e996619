"""Linear layers, with weights packed for the CPU where that pays."""

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

# Row count for which oneDNN chooses the packed layout. One layout serves every row count; of the
# hints tried (none, 1, 16, 64, 256) this one was best or nearly so from 1 row to 256.
ROWS_HINT = 64
SAMPLES = 4_096  # about how many weights `panels` compares


def pack(weight: Tensor) -> Tensor | None:
    """Pack a weight [outputs, inputs] into oneDNN's own layout; None if that is not possible.

    F.linear reorders the weight in every call; packing does it once. Measured on Qwen2.5-0.5B's
    shapes, one thread of a Zen 4: time with F.linear over time when packed, for all GEMMs of a
    step with 1/4/8/32/64/256 rows: bfloat16 1.47 1.47 1.44 1.34 1.53 1.28, float32 0.98 1.60 1.93
    1.37 1.19 1.06. The idea comes from torch.compile's CPU weight prepacking.
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
    """Whether this torch has oneDNN, with the operators that this file uses."""
    ops = torch.ops.mkldnn
    named = hasattr(ops, "_reorder_linear_weight") and hasattr(ops, "_linear_pointwise")
    return torch._C._has_mkldnn and named


def has_onednn_bfloat16() -> bool:
    """Whether oneDNN multiplies in bfloat16 on this CPU. It needs AVX-512."""
    return _has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def panels(weight: Tensor, packed: Tensor) -> int:
    """The address of oneDNN's packed weight if its layout is the panels that our kernels read
    (cpu/native/products.cpp); else 0. weight [outputs, inputs]; packed: pack(weight).

    oneDNN does not promise a layout, so samples from the whole weight are compared.
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
    """Every kind of product with this weight, whose shape must fit panels."""
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
    """Whether oneDNN packs weights into the panels that our kernels read."""
    weight = torch.arange(2 * PANEL * PANEL).view(2 * PANEL, PANEL).to(torch.bfloat16)
    packed = pack(weight)
    return packed is not None and panels(weight, packed) != 0


class Linear:
    """y = x W^T + b. Each row of y depends only on its own row of x (to rounding).

    On a CPU in bfloat16, each row count is multiplied by oneDNN or by one of our own kernels, as
    product_choice says. Ours are used only if oneDNN's packed weight has their layout.
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
        """Whether new row counts cost nothing extra. oneDNN prepares each row count separately."""
        return Kind.ONEDNN not in self.kinds

    @property
    def slow_below_four(self) -> bool:
        """Whether 1 to 3 rows take longer than 4: true of oneDNN's packed product, not of ours."""
        return self.packed is not None and self.kinds[0] is Kind.ONEDNN

    @property
    def rows_at_once(self) -> int:
        """Rows that a product computes at once, even if there are fewer."""
        return self.kernels.rows_at_once if self.kernels and Kind.PAIRS in self.kinds else 1

    @property
    def part(self) -> tuple[int, int]:
        """The weight's address and bytes."""
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
    """A Linear on a CPU that uses only our own kernels and keeps its weight in bfloat16.

    The products equal those of the widened weight, to rounding. A row gives the same bits alone
    and in any batch that the same kernel multiplies.
    """

    __slots__ = ("bias", "kinds", "matrix", "nbytes", "outputs")
    weight, packed = None, None
    any_rows, slow_below_four = True, False  # as our kernels are

    def __init__(
        self,
        weights: Sequence[Tensor],
        bias: Tensor | None,
        kernels: Kernels,
        kinds: tuple[Kind, ...] = (Kind.WIDENED,),
    ) -> None:
        """weights: [outputs, inputs] each, in bfloat16; stacked along outputs and not kept. bias:
        [all outputs], in the rows' dtype. kinds: which of our kernels multiplies each row count in
        bfloat16, from product_choice; float32 rows have only one kernel."""
        self.matrix, self.bias, self.kinds = HalfMatrix(weights, kernels), bias, kinds
        self.outputs = self.matrix.outputs
        self.nbytes = self.matrix.nbytes + (0 if bias is None else bias.nbytes)

    @property
    def rows_at_once(self) -> int:
        """As Linear.rows_at_once."""
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
    """A linear layer for rows in this dtype. weights: [outputs, inputs] each, in their stored
    dtype; stacked along outputs."""
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
