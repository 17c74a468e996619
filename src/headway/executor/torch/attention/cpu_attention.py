"""CpuAttention: our own kernel for rows of one query (cpu/native/attention.cpp)."""

import ctypes
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.core.cost.gathering import UNPADDED
from headway.executor.torch.attention.gathered import GatheredAttention, GatheredStep
from headway.executor.torch.attention.items import single_items
from headway.executor.torch.attention.step_rows import Ints, StepRows
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.cpu.library import Kernels
from headway.executor.torch.memory.block_tables import BlockTables
from headway.executor.torch.memory.kv_cache import KVCache

SPAN = 1024  # keys of a row that one thread reads


@dataclass(frozen=True, slots=True)
class SingleWork:
    """What a call computes for the rows of one query, in layers of one window."""

    items: Ints  # int64 [items, 8] (items.py)
    merges: Ints  # int64 [rows, 3]
    partials: Tensor  # float32 [spans that are merged, heads, head_dim]
    sums: Tensor  # float32 [spans that are merged, heads, 2]


class CpuAttention(GatheredAttention):
    """Rows of one query read keys and values where they lie; rows of many are as in
    GatheredAttention."""

    def __init__(
        self, config: ModelConfig, cache: KVCache, tables: BlockTables, kernels: Kernels
    ) -> None:
        super().__init__(config, cache, tables)
        self.gathering, self.heads, self.kernels = UNPADDED, config.heads, kernels

    def of_step(self, rows: StepRows) -> "CpuStep":  # type: ignore[override]
        """As Attention.of_step."""
        prefills = tuple(self._prefill(rows, i) for i in range(rows.singles, len(rows.slots)))
        many = GatheredStep(self.cache, self._scales, self._of_layer, (), prefills)
        windows = self.cache.windows if rows.singles else ()
        tables = np.ascontiguousarray(self._tables.host)
        return CpuStep(self, many, tables, {window: self._work(rows, window) for window in windows})

    def _work(self, rows: StepRows, window: int) -> SingleWork:
        items, merges, partials = single_items(rows, window, SPAN)
        return SingleWork(
            np.ascontiguousarray(items),
            np.ascontiguousarray(merges),
            torch.empty(partials, self.heads, self.cache.head_dim),
            torch.empty(partials, self.heads, 2),
        )


@dataclass(frozen=True, slots=True)
class CpuStep:
    """Attention of one step."""

    of: CpuAttention
    many: GatheredStep
    tables: Ints
    singles: dict[int, SingleWork]  # by window; empty: there are no rows of one query

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """As StepAttention.attend."""
        if not self.singles:
            return self.many.attend(layer, q)
        out = q.new_empty(len(q), self.of.heads * self.of.cache.head_dim)
        self._singles(layer, q, out)
        for row in self.many.prefills:
            out[row.begin : row.end] = self.many.attend_row(layer, q, row)
        return out

    def _singles(self, layer: int, q: Tensor, out: Tensor) -> None:
        cache, scales = self.of.cache, self.many.scales
        work = self.singles[self.many.windows[layer]]
        assert q.stride()[1:] == (cache.head_dim, 1), "a token's heads lie end to end"
        shape = (self.of.heads, cache.heads, cache.head_dim, cache.block_size, self.tables.shape[1])
        self.of.kernels.attend(
            *(q.dtype is torch.bfloat16, (ctypes.c_int64 * 5)(*shape), q.data_ptr(), q.stride(0)),
            *(cache.keys[layer].data_ptr(), cache.values[layer].data_ptr()),
            *(self.tables.ctypes.data, work.items.ctypes.data, len(work.items)),
            *(work.merges.ctypes.data, len(work.merges)),
            *(work.partials.data_ptr(), work.sums.data_ptr()),
            *(scales.scores, scales.scores_cap, out.data_ptr(), torch.get_num_threads()),
        )


def attends(kernels: Kernels, size: int) -> bool:
    """Whether there is code for heads of this size."""
    shape = (ctypes.c_int64 * 5)(1, 1, size, 1, 1)
    return bool(
        kernels.attend(
            0, shape, *[None, 0], *[None] * 4, 0, None, 0, *[None] * 2, 1.0, 0.0, None, 1
        )
    )
