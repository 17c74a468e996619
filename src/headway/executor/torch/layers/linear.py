"""One linear layer, its weight packed for the CPU where that pays."""

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows for which oneDNN chooses the packed layout. One layout serves every number of rows; of
# the hints tried (none, 1, 16, 64, 256) this one was best or near it from 1 row to 256.
ROWS_HINT = 64


def pack(weight: Tensor) -> Tensor | None:
    """The weight [outputs, inputs] in oneDNN's own layout, or None where that cannot be had.

    F.linear reorders the weight anew in every call; packing does it once. Measured on the
    Qwen2.5-0.5B shapes, one thread of a Zen 4, time of F.linear over time of packed for all
    GEMMs of a step with 1/4/8/32/64/256 rows: bfloat16 1.47 1.47 1.44 1.34 1.53 1.28, float32
    0.98 1.60 1.93 1.37 1.19 1.06. The idea is that of torch.compile's CPU weight prepacking.
    """
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return None
    ops = torch.ops.mkldnn
    if not (hasattr(ops, "_reorder_linear_weight") and hasattr(ops, "_linear_pointwise")):
        return None
    if weight.dtype is torch.bfloat16 and not ops._is_mkldnn_bf16_supported():
        return None
    if weight.dtype not in (torch.bfloat16, torch.float32):
        return None
    packed: Tensor = ops._reorder_linear_weight(weight.contiguous(), ROWS_HINT)
    return packed


class Linear:
    """y = x W^T + b. Each row of y depends on its row of x alone (to rounding)."""

    __slots__ = ("bias", "nbytes", "packed", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None, packing: bool = True) -> None:
        """weight [outputs, inputs], bias [outputs]. The plain weight is kept only if unpacked."""
        self.bias = bias
        self.packed = pack(weight) if packing else None
        self.weight = weight if self.packed is None else None
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs], n >= 1."""
        if self.weight is not None:
            return F.linear(x, self.weight, self.bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return y
