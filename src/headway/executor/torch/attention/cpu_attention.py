"""CpuAttention: our own kernel, which reads keys and values in place (cpu/native/)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.core.cost.gathering import UNPADDED
from headway.executor.torch.attention.cpu_arithmetic import arithmetic_of
from headway.executor.torch.attention.items import many_items, single_items
from headway.executor.torch.attention.step_rows import Ints, StepRows
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.cpu.library import Kernels
from headway.executor.torch.memory.block_tables import BlockTables
from headway.executor.torch.memory.kv_cache import KVCache

SPAN = 1024  # keys of a span: what one thread reads for a row of one query
NO_PARTIALS = torch.empty(0)
LINES = 128  # of an item of a row of many queries: queries x query heads of a KV head


@dataclass(frozen=True, slots=True)
class Work:
    """What one call computes, for layers with the same window."""

    items: Ints  # int64 [items, 8] (items.py)
    merges: Ints  # int64 [rows, 3]
    partials: Tensor  # float32 [spans to merge, heads, head_dim]
    sums: Tensor  # float32 [spans to merge, heads, 2]


class CpuAttention:
    """Attention without gathering or padding. Supports soft caps and windows."""

    gathering = UNPADDED

    def __init__(
        self, config: ModelConfig, cache: KVCache, tables: BlockTables, kernels: Kernels
    ) -> None:
        self.cache, self.kernels = cache, kernels
        self.arithmetic = arithmetic_of(kernels, cache.keys[0].dtype).number
        self.heads, self.scales = config.heads, config.scales
        self.windows = tuple(layer.window for layer in config.layer_attention)
        self._tables = tables
        width = tables.host.shape[1]
        shape = (config.heads, cache.heads, cache.head_dim, cache.block_size, width)
        # Kernels get addresses, so these stay alive: the shape, and each window's work of a step.
        self.shape = np.array(shape, dtype=np.int64)
        self.words = {each: np.zeros(7, dtype=np.int64) for each in cache.windows}

    def of_step(self, rows: StepRows) -> "CpuStep":
        """As Attention.of_step."""
        tables = np.ascontiguousarray(self._tables.host)
        found = {each: self._work(rows, each) for each in self.cache.windows}
        for window, work in found.items():
            self.words[window][:] = (
                *(tables.ctypes.data, work.items.ctypes.data, len(work.items)),
                *(work.merges.ctypes.data, len(work.merges)),
                *(work.partials.data_ptr(), work.sums.data_ptr()),
            )
        return CpuStep(self, tables, found)

    def _work(self, rows: StepRows, window: int) -> Work:
        singles, merges, partials = single_items(rows, window, SPAN)
        many = many_items(rows, window, max(1, LINES * self.cache.heads // self.heads))
        items = np.concatenate([many, singles]) if len(many) else singles  # the longest first
        if not partials:
            return Work(items, merges, NO_PARTIALS, NO_PARTIALS)
        return Work(
            items,
            np.ascontiguousarray(merges),
            torch.empty(partials, self.heads, self.cache.head_dim, dtype=torch.float32),
            torch.empty(partials, self.heads, 2, dtype=torch.float32),
        )


@dataclass(frozen=True, slots=True)
class CpuStep:
    """Attention of one step. Only one exists at a time."""

    of: CpuAttention
    tables: Ints
    work: dict[int, Work]  # by window; keeps alive the memory that the kernels read

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """As StepAttention.attend."""
        of, cache, scales = self.of, self.of.cache, self.of.scales
        window, out = of.windows[layer], q.new_empty(len(q), of.heads * cache.head_dim)
        assert q.stride()[1:] == (cache.head_dim, 1), "a token's heads lie end to end"
        of.kernels.attend(
            *(of.arithmetic, of.shape.ctypes.data, q.data_ptr(), q.stride(0)),
            *(cache.keys[layer].data_ptr(), cache.values[layer].data_ptr()),
            *(of.words[window].ctypes.data, scales.scores, scales.scores_cap, window),
            *(out.data_ptr(), torch.get_num_threads()),
        )
        return out


def attends(kernels: Kernels, size: int) -> bool:
    """Whether the kernel supports this head_dim."""
    shape, nothing = np.array([1, 1, size, 1, 1], dtype=np.int64), np.zeros(7, dtype=np.int64)
    addresses = shape.ctypes.data, None, 0, None, None, nothing.ctypes.data
    return bool(kernels.attend(0, *addresses, 1.0, 0.0, 0, None, 1))
