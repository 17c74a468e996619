"""CpuOperators: the work between matrix products by our own kernels (cpu/native/tokens.cpp)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.executor.torch.config.model_config import Activation, ModelConfig
from headway.executor.torch.cpu.library import Kernels
from headway.executor.torch.layers.norm import Norm, RmsNorm
from headway.executor.torch.layers.operators import NO_NORM, RotaryTable, TorchOperators
from headway.executor.torch.memory.kv_cache import KVCache


class CpuOperators(TorchOperators):
    """Operators by our CPU kernels. Where there is a LayerNorm, torch's operators are used."""

    def __init__(
        self,
        config: ModelConfig,
        rotary: list[RotaryTable],
        table_of_layer: list[int],
        kernels: Kernels,
    ) -> None:
        super().__init__(config, rotary, table_of_layer)
        self.kernels = kernels
        heads = config.heads, config.kv_heads, config.head_dim
        # One per table; the last is for layers without one. Kernels get addresses, so it is kept.
        pairs = [cos.shape[-1] for cos, _ in rotary]
        self.shapes = np.array([(*heads, each) for each in (*pairs, 0)], dtype=np.int64)
        self.places = np.zeros(2, dtype=np.int64)  # addresses of the step's positions and cells

    def add_and_norm(
        self, x: Tensor, found: Tensor | None, after: Norm, before: Norm
    ) -> tuple[Tensor, Tensor]:
        """As Operators.add_and_norm."""
        fits = _fit(after) and _fit(before) and x.is_contiguous()
        if not fits or (found is None and before is NO_NORM):
            return super().add_and_norm(x, found, after, before)
        total = x if found is None else torch.empty_like(x)
        normed = total if before is NO_NORM else torch.empty_like(x)
        if found is not None:
            found = found.contiguous()
        self.add_norm((x, found, total, normed), after, before, self.config.scales.residual)
        return total, normed

    def add_norm(
        self,
        rows: tuple[Tensor, Tensor | None, Tensor, Tensor],
        after: Norm,
        before: Norm,
        scale: float,
    ) -> None:
        """Run the kernel add_norm. rows: x, found, total, normed, [n, size] each; only x and normed
        may have gaps between rows."""
        x, found, total, normed = rows
        given = [norm for norm in (after, before) if isinstance(norm, RmsNorm)]
        self.kernels.add_norm(
            *(x.dtype is torch.bfloat16, _is_wide(given)),
            *(x.data_ptr(), x.stride(0), _address(found), total.data_ptr()),
            *(normed.data_ptr(), normed.stride(0), len(x), x.shape[1]),
            *(_weight(after), _weight(before), given[0].eps if given else 0.0, scale),
            torch.get_num_threads(),
        )

    def of_step(self, positions: Tensor, cells: Tensor, cache: KVCache) -> "CpuHeads":  # type: ignore[override]
        """As Operators.of_step."""
        self.places[:] = positions.data_ptr(), cells.data_ptr()
        return CpuHeads(self, positions, cells, cache)


@dataclass(frozen=True, slots=True)
class CpuHeads:
    """StepHeads by our CPU kernels."""

    of: CpuOperators
    positions: Tensor
    cells: Tensor
    cache: KVCache

    def take_in(self, layer: int, qkv: Tensor, q_norm: Norm, k_norm: Norm) -> Tensor:
        """As StepHeads.take_in. A norm over all heads as one runs first, in place."""
        of, norms = self.of, self.of.config.family.qk_norm
        if not (_fit(q_norm) and _fit(k_norm) and qkv.is_contiguous()):
            step = TorchOperators.of_step(of, self.positions, self.cells, self.cache)
            return step.take_in(layer, qkv, q_norm, k_norm)
        heads, kv_heads, size = of.config.heads, of.config.kv_heads, of.config.head_dim
        if norms == "whole":
            keys = (heads + kv_heads) * size
            torch.nan_to_num_(qkv[:, heads * size :], 0.0, 0.0, 0.0)
            for part, norm in (
                (qkv[:, : heads * size], q_norm),
                (qkv[:, heads * size : keys], k_norm),
            ):
                of.add_norm((part, None, part, part), NO_NORM, norm, 1.0)
        given = [norm for norm in (q_norm, k_norm) if isinstance(norm, RmsNorm)]
        given = given if norms == "head" else []
        table = of.table_of_layer[layer]
        cos, sin = of.rotary[table] if table >= 0 else (qkv, qkv)
        q = qkv.new_empty(len(qkv), heads, size)
        of.kernels.take_in(
            *(qkv.dtype is torch.bfloat16, _is_wide(given), qkv.data_ptr(), len(qkv)),
            of.shapes[table].ctypes.data,
            *(_weight(q_norm) if given else None, _weight(k_norm) if given else None),
            *(given[0].eps if given else 0.0, cos.data_ptr(), sin.data_ptr()),
            *(of.places.ctypes.data, q.data_ptr()),
            *(self.cache.keys[layer].data_ptr(), self.cache.values[layer].data_ptr()),
            torch.get_num_threads(),
        )
        return q


class CpuGate:
    """act(gate) x up of [n, 2 x intermediate]."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels

    def __call__(self, wide: Tensor, activation: Activation) -> Tensor:
        """[n, 2 x intermediate] -> [n, intermediate]."""
        wide = wide.contiguous()
        rows, size = len(wide), wide.shape[1] // 2
        out, narrow = wide.new_empty(rows, size), wide.dtype is torch.bfloat16
        threads, silu = torch.get_num_threads(), activation == "silu"
        self.kernels.gate_up(narrow, wide.data_ptr(), out.data_ptr(), rows, size, silu, threads)
        return out


def _fit(norm: Norm) -> bool:
    return isinstance(norm, RmsNorm) or norm is NO_NORM


def _weight(norm: Norm) -> int | None:
    return norm.weight.data_ptr() if isinstance(norm, RmsNorm) else None


def _is_wide(norms: list[RmsNorm]) -> bool:
    """Whether the norms' weights are in float32."""
    return bool(norms) and norms[0].weight.dtype is torch.float32


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
