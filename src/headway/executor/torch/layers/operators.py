"""The seam of a layer's per-token work between its matrix products: norms, rotation, KV writes."""

from typing import Protocol

import torch
from torch import Tensor

from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.layers.norm import NoNorm, Norm
from headway.executor.torch.layers.rope import rotate
from headway.executor.torch.memory.kv_cache import KVCache

RotaryTable = tuple[Tensor, Tensor]  # cosines and sines
NO_NORM = NoNorm()


class StepHeads(Protocol):
    """The query, key and value heads of one step."""

    def take_in(self, layer: int, qkv: Tensor, q_norm: Norm, k_norm: Norm) -> Tensor:
        """Norm and rotate the heads in qkv [N, all heads x head_dim], and write keys and values to
        the KV memory.

        Returns the queries, [N, heads, head_dim].
        """
        ...


class Operators(Protocol):
    """The work between matrix products. Each token is independent of the others."""

    def add_and_norm(
        self, x: Tensor, found: Tensor | None, after: Norm, before: Norm
    ) -> tuple[Tensor, Tensor]:
        """Return y = x + residual scale * after(found), and before(y). found None: y = x."""
        ...

    def of_step(self, positions: Tensor, cells: Tensor, cache: KVCache) -> StepHeads:
        """The heads of one step. positions [N]: of the tokens. cells [N]: KV cells to write to."""
        ...


class TorchOperators:
    """Operators built from torch's own, for any device."""

    def __init__(
        self, config: ModelConfig, rotary: list[RotaryTable], table_of_layer: list[int]
    ) -> None:
        """table_of_layer: each layer's index in `rotary`; -1: no rotary embedding."""
        self.config, self.rotary, self.table_of_layer = config, rotary, table_of_layer

    def add_and_norm(
        self, x: Tensor, found: Tensor | None, after: Norm, before: Norm
    ) -> tuple[Tensor, Tensor]:
        """As Operators.add_and_norm."""
        if found is not None:
            scale, found = self.config.scales.residual, after(found)
            x = x + found if scale == 1 else torch.add(x, found, alpha=scale)
        return x, before(x)

    def of_step(self, positions: Tensor, cells: Tensor, cache: KVCache) -> "TorchHeads":
        """As Operators.of_step."""
        tables: list[RotaryTable | None] = [
            *((cos[positions], sin[positions]) for cos, sin in self.rotary),
            None,
        ]
        return TorchHeads(self.config, [tables[i] for i in self.table_of_layer], cells, cache)


class TorchHeads:
    """StepHeads built from torch's operators."""

    def __init__(
        self,
        config: ModelConfig,
        rotations: list[RotaryTable | None],
        cells: Tensor,
        cache: KVCache,
    ) -> None:
        """rotations: by layer, the cosines and sines of the step's positions; None: no rotation."""
        self.config, self.rotations, self.cells, self.cache = config, rotations, cells, cache

    def take_in(self, layer: int, qkv: Tensor, q_norm: Norm, k_norm: Norm) -> Tensor:
        """As StepHeads.take_in."""
        heads, kv_heads = self.config.heads, self.config.kv_heads
        qkv = qkv.view(len(qkv), heads + 2 * kv_heads, self.config.head_dim)
        # NaN must not reach the cache, where other rows may gather it. The row's own residual
        # stream keeps the NaN, since these weights are finite, and it is detected there.
        torch.nan_to_num_(qkv[:, heads:], 0.0, 0.0, 0.0)
        turned, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        match self.config.family.qk_norm:
            case "head":
                q, k = q_norm(turned[:, :heads]), k_norm(turned[:, heads:])
                turned = torch.cat((q, k), dim=1)
            case "whole":
                q, k = turned[:, :heads].flatten(1), turned[:, heads:].flatten(1)
                turned = torch.cat((q_norm(q), k_norm(k)), dim=1).view(turned.shape)
        rotation = self.rotations[layer]
        if rotation is not None:
            turned = rotate(turned, *rotation)
        self.cache.write(layer, self.cells, turned[:, heads:], v)
        return turned[:, :heads]
