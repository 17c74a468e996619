"""FusedOperators: the work between matrix products, each piece in one Triton kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.executor.torch.config.model_config import Activation, ModelConfig
from headway.executor.torch.fused.token_kernels import add_norm, gate_up, turn_and_write
from headway.executor.torch.layers.norm import Norm, RmsNorm
from headway.executor.torch.layers.operators import NO_NORM, TorchOperators
from headway.executor.torch.memory.kv_cache import KVCache

GATE_COLUMNS = 1024  # columns per program
WIDE_ROW = 2048  # rows of at least this many elements get more warps per program


class FusedOperators(TorchOperators):
    """Operators by our Triton kernels. LayerNorm stays torch's own, which is already one kernel."""

    def add_and_norm(
        self, x: Tensor, found: Tensor | None, after: Norm, before: Norm
    ) -> tuple[Tensor, Tensor]:
        """As Operators.add_and_norm."""
        fits = all(isinstance(norm, RmsNorm) or norm is NO_NORM for norm in (after, before))
        if not fits or (found is None and before is NO_NORM):
            return super().add_and_norm(x, found, after, before)
        total = x if found is None else torch.empty_like(x)
        normed = total if before is NO_NORM else torch.empty_like(x)
        _add_norm((x, found, total, normed), after, before, self.config.scales.residual)
        return total, normed

    def of_step(self, positions: Tensor, cells: Tensor, cache: KVCache) -> "FusedHeads":  # type: ignore[override]
        """As Operators.of_step."""
        return FusedHeads(self, positions, cells, cache)


@dataclass(frozen=True, slots=True)
class FusedHeads:
    """StepHeads by our Triton kernels."""

    of: FusedOperators
    positions: Tensor
    cells: Tensor
    cache: KVCache

    def take_in(self, layer: int, qkv: Tensor, q_norm: Norm, k_norm: Norm) -> Tensor:
        """As StepHeads.take_in. A norm over all heads as one runs first, in place."""
        config: ModelConfig = self.of.config
        heads, kv_heads, size = config.heads, config.kv_heads, config.head_dim
        per_head = config.family.qk_norm == "head"
        if config.family.qk_norm == "whole":
            keys = (heads + kv_heads) * size
            for part, norm in (
                (qkv[:, : heads * size], q_norm),
                (qkv[:, heads * size : keys], k_norm),
            ):
                _add_norm((part, None, part, part), NO_NORM, norm, 1.0)
        table = self.of.table_of_layer[layer]
        cos, sin = self.of.rotary[max(table, 0)] if self.of.rotary else (qkv, qkv)
        q = qkv.new_empty(len(qkv), heads, size)
        turn_and_write[(len(qkv), heads + 2 * kv_heads)](
            qkv,
            *(_weight(q_norm, qkv, per_head), _weight(k_norm, qkv, per_head), cos, sin),
            *(self.positions, self.cells, q, self.cache.keys[layer], self.cache.values[layer]),
            HEADS=heads,
            KV_HEADS=kv_heads,
            HEAD_DIM=size,
            PADDED=_power_of_two(size),
            PAIRS=cos.shape[-1],
            EPS=config.eps,
            NORMS=per_head,
            TURNS=table >= 0,
            num_warps=1,
        )
        return q


def gate(wide: Tensor, activation: Activation) -> Tensor:
    """act(gate) x up in one kernel: [n, 2 x intermediate] -> [n, intermediate]."""
    size = wide.shape[1] // 2
    out = wide.new_empty(len(wide), size)
    gate_up[(len(wide), -(-size // GATE_COLUMNS))](
        *(wide, out), SIZE=size, COLUMNS=GATE_COLUMNS, SILU=activation == "silu"
    )
    return out


def _add_norm(
    rows: tuple[Tensor, Tensor | None, Tensor, Tensor], after: Norm, before: Norm, scale: float
) -> None:
    """Launch the kernel add_norm. rows: x, found, total, normed, [n, SIZE] each; only x and normed
    may have gaps between rows."""
    x, found, total, normed = rows
    has_after, has_before = isinstance(after, RmsNorm), isinstance(before, RmsNorm)
    eps = next((norm.eps for norm in (after, before) if isinstance(norm, RmsNorm)), 0.0)
    add_norm[(len(x),)](
        *(x, x if found is None else found),
        *(_weight(after, x, has_after), _weight(before, x, has_before)),
        *(total, normed, x.stride(0), normed.stride(0)),
        SIZE=x.shape[1],
        PADDED=_power_of_two(x.shape[1]),
        EPS=eps,
        SCALE=scale,
        ADDS=found is not None,
        AFTER=has_after,
        BEFORE=has_before,
        num_warps=8 if x.shape[1] >= WIDE_ROW else 4,
    )


def _weight(norm: Norm, instead: Tensor, is_used: bool) -> Tensor:
    return norm.weight if is_used and isinstance(norm, RmsNorm) else instead


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
