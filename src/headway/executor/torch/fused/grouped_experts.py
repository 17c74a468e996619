"""GroupedExperts: each expert computes only its own tokens, and the host need not know which."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.executor.torch.fused.expert_kernels import add_up, grouped_product
from headway.executor.torch.layers.linear import AnyLinear, Linear
from headway.executor.torch.layers.mlp import Mlp

FEW = 16  # tiles are small up to this many assignments per expert, on average
SUM_COLUMNS = 512  # columns per program of add_up


@dataclass(frozen=True, slots=True)
class ProductTiles:
    """Shapes of the product's tiles."""

    rows: int
    columns: int
    size: int  # along the summed dimension

    @classmethod
    def of(cls, assignments: int, experts: int, itemsize: int) -> "ProductTiles":
        """itemsize: bytes of one number. `size` does not depend on the rows, so an element is
        always summed in the same steps."""
        return cls(16 if assignments <= FEW * experts else 64, 64, 128 // itemsize)


OPTIONS = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True}  # grouped_product's


class GroupedExperts:
    """Sorts tokens by expert on the device and computes all experts in one launch per product.

    torch's own grouped_mm does this only for bfloat16 on compute capability 9.0 and later.
    Elsewhere it waits for the device to learn each expert's rows.
    """

    def __init__(self, experts: tuple[Mlp, ...]) -> None:
        """experts: all of one shape, without biases, not packed. Their weights become views of two
        stacks, so nothing is kept twice."""
        self.up = _stacked([each.gate_up for each in experts])
        self.down = _stacked([each.down for each in experts])
        self.activate = experts[0].activate
        device, dtype = self.up.device, self.up.dtype
        self.numbers = torch.arange(len(experts), device=device)
        tf32 = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
        # Triton's interpreter, which runs this on a CPU, has no bfloat16 products.
        is_bfloat16_on_cpu = device.type == "cpu" and dtype is torch.bfloat16
        self.precision = "wide" if is_bfloat16_on_cpu else tf32

    def __call__(self, x: Tensor, shares: Tensor, chosen: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden]. shares and chosen [n, experts per token]."""
        experts, order = chosen.flatten().sort(stable=True)
        ends = torch.searchsorted(experts, self.numbers, right=True, out_int32=True)
        wide = self._product(x, self.up, order, ends, chosen.shape[1], first=True)
        found = self._product(self.activate(wide), self.down, order, ends, chosen.shape[1], False)
        out, size = torch.empty_like(x), x.shape[1]
        add_up[(len(x), -(-size // SUM_COLUMNS))](
            *(found, shares.contiguous(), out),
            SIZE=size,
            CHOSEN=chosen.shape[1],
            COLUMNS=SUM_COLUMNS,
        )
        return out

    def _product(
        self, rows: Tensor, weights: Tensor, order: Tensor, ends: Tensor, chosen: int, first: bool
    ) -> Tensor:
        count, (experts, columns, size) = len(order), weights.shape
        tiles = ProductTiles.of(count, experts, rows.itemsize)
        out = rows.new_empty(count, columns)
        most = min(count, count // tiles.rows + experts)  # tiles that could be needed
        grouped_product[(most, -(-columns // tiles.columns))](
            *(rows, weights, order, ends, out, count),
            SIZE=size,
            COLUMNS=columns,
            CHOSEN=chosen,
            EXPERTS=experts,
            EXPERTS_PADDED=1 << (experts - 1).bit_length(),
            FIRST=first,
            TILE_ROWS=tiles.rows,
            TILE_COLUMNS=tiles.columns,
            TILE_SIZE=tiles.size,
            PRECISION=self.precision,
            **OPTIONS,
        )
        return out


def _stacked(linears: Sequence[AnyLinear]) -> Tensor:
    """Stack the weights: [linears, outputs, inputs]. Each linear's weight becomes a view of it."""
    plain = [each for each in linears if isinstance(each, Linear) and each.bias is None]
    weights = [each.weight for each in plain if each.weight is not None]
    assert len(weights) == len(linears), "an expert has a plain weight and no bias"
    stack = torch.stack(weights)
    for linear, weight in zip(plain, stack, strict=True):
        linear.weight = weight
    return stack
