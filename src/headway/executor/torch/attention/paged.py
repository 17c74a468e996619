"""PagedAttention: our Triton kernels, which read keys and values in place."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.core.cost.gathering import UNPADDED
from headway.executor.torch.attention.items import many_items, single_items
from headway.executor.torch.attention.kernels import attend, merge
from headway.executor.torch.attention.step_rows import Ints, StepRows
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.memory.block_tables import BlockTables
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.memory.transfer import send

LEAST_TILE = 16  # smallest side of a product on tensor cores
KEY_TILE_BYTES, QUERY_TILE_BYTES = 16 << 10, 32 << 10  # so all tiles fit into shared memory
MOST_KEYS, MOST_ROWS = 64, 128  # largest tile


@dataclass(frozen=True, slots=True)
class Tiles:
    """Shapes of the kernels' tiles. They depend only on the model, never on a step."""

    dims: int  # head_dim, padded
    keys: int
    single_rows: int  # score tile's rows for a row of one query: the heads of a group
    many_rows: int  # score tile's rows for a row of many queries: queries x group

    @classmethod
    def of(cls, config: ModelConfig, itemsize: int) -> "Tiles":
        """itemsize: bytes of one number in the KV memory."""
        group = config.heads // config.kv_heads
        dims = max(LEAST_TILE, _power_of_two(config.head_dim))
        keys = max(LEAST_TILE, min(MOST_KEYS, KEY_TILE_BYTES // (dims * itemsize)))
        single = max(LEAST_TILE, _power_of_two(group))
        rows = min(MOST_ROWS, QUERY_TILE_BYTES // (dims * itemsize))
        return cls(dims, keys, single, max(rows, single))


@dataclass(frozen=True, slots=True)
class Work:
    """What one call computes, for layers with the same window. Its tensors are on the device."""

    singles: Tensor  # int32 [items, 8]: items of rows of one query (kernels.attend)
    many: Tensor  # int32 [items, 8]: items of rows of many queries (kernels.attend)
    merges: Tensor  # int32 [rows, 3]: rows of several spans (kernels.merge)
    partials: int  # the number of spans to merge


class PagedAttention:
    """Reads each key in place, through the block tables. Supports soft caps and windows."""

    gathering = UNPADDED

    def __init__(self, config: ModelConfig, cache: KVCache, tables: BlockTables) -> None:
        self.cache, self.tables = cache, tables
        self.heads, self.scales = config.heads, config.scales
        self.device, self.dtype = cache.keys[0].device, cache.keys[0].dtype
        self.tiles = Tiles.of(config, self.dtype.itemsize)
        # TF32 only if torch's own products may use it. Triton's interpreter, which runs this on a
        # CPU, has no bfloat16 products.
        tf32 = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
        is_bfloat16_on_cpu = self.device.type == "cpu" and self.dtype is torch.bfloat16
        self.precision = "wide" if is_bfloat16_on_cpu else tf32
        self.windows = tuple(layer.window for layer in config.layer_attention)

    def of_step(self, rows: StepRows) -> "PagedStep":
        """As Attention.of_step. One copy sends the work of all windows."""
        group = self.heads // self.cache.heads
        arrays, partials = list[Ints](), list[int]()
        for window in self.cache.windows:
            singles, merges, count = single_items(rows, window)
            arrays += [singles, many_items(rows, window, self.tiles.many_rows // group), merges]
            partials.append(count)
        sent = send(self.device, *(each.astype(np.int32) for each in arrays))
        work = {
            window: Work(sent[3 * i], sent[3 * i + 1], sent[3 * i + 2], partials[i])
            for i, window in enumerate(self.cache.windows)
        }
        return PagedStep(self, self.tables.on_device(), work)


@dataclass(frozen=True, slots=True)
class PagedStep:
    """Attention of one step."""

    of: PagedAttention
    tables: Tensor
    work: dict[int, Work]  # by window

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """As StepAttention.attend."""
        heads, size = self.of.heads, self.of.cache.head_dim
        out = q.new_empty(len(q), heads * size)
        work = self.work[self.of.windows[layer]]
        partials = torch.empty(work.partials, heads, size, dtype=torch.float32, device=q.device)
        sums = torch.empty(work.partials, heads, 2, dtype=torch.float32, device=q.device)
        tiles = self.of.tiles
        for items, rows in ((work.singles, tiles.single_rows), (work.many, tiles.many_rows)):
            if len(items):
                self._launch(layer, q, items, rows, (out, partials, sums))
        if len(work.merges):
            merge[(len(work.merges), heads)](
                *(partials, sums, work.merges, out),
                HEADS=heads,
                HEAD_DIM=size,
                DIMS=tiles.dims,
                enable_fp_fusion=True,
            )
        return out

    def _launch(
        self, layer: int, q: Tensor, items: Tensor, rows: int, into: tuple[Tensor, ...]
    ) -> None:
        cache, tiles, scales = self.of.cache, self.of.tiles, self.of.scales
        assert q.stride()[1:] == (cache.head_dim, 1), "a token's heads lie end to end"
        attend[(len(items), cache.heads)](
            q,
            cache.keys[layer],
            cache.values[layer],
            self.tables,
            items,
            *into,
            q.stride(0),
            WIDTH=self.tables.stride(0),
            SCALE=scales.scores,
            CAP=scales.scores_cap,
            WINDOW=self.of.windows[layer],
            KV_HEADS=cache.heads,
            GROUP=self.of.heads // cache.heads,
            HEAD_DIM=cache.head_dim,
            DIMS=tiles.dims,
            BLOCK=cache.block_size,
            TILE_ROWS=rows,
            TILE_KEYS=tiles.keys,
            PRECISION=self.of.precision,
            **options(rows),
        )


def options(rows: int) -> dict[str, int | bool]:
    """Compile options of `attend` for a tile of this many rows."""
    return {"num_warps": 8 if rows == MOST_ROWS else 4, "num_stages": 2, "enable_fp_fusion": True}


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
