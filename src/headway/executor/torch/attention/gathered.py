"""GatheredAttention: gathers keys and values, then attends with torch's own operators."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.executor.torch.attention.step_rows import Ints, StepRows
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.config.scales import Scales
from headway.executor.torch.layers import attention
from headway.executor.torch.memory.block_tables import BlockTables
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.memory.transfer import send_one


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """A group of rows of one token with similar lengths: flat tokens begin to end."""

    begin: int
    end: int
    blocks: Tensor  # [rows x blocks of the longest], scratch after a row's last block
    masks: dict[int, Tensor]  # by window: [rows, 1, 1, keys], 0 or -inf


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One row of several tokens: flat tokens begin to end."""

    begin: int
    end: int
    keys: int  # how many keys it attends to
    blocks: Tensor  # the blocks that hold those keys
    # by window: [end - begin, keys], 0 or -inf; None: causal from position 0
    masks: dict[int, Tensor | None]


@dataclass(frozen=True, slots=True)
class GatheredStep:
    """Attention of one step. All steps share the cache's work space, so one must end before the
    next attends."""

    cache: KVCache
    scales: Scales
    windows: tuple[int, ...]  # by layer; 0: none
    decodes: tuple[DecodeRows, ...]
    prefills: tuple[PrefillRow, ...]

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """As StepAttention.attend."""
        cache, scales, window, found = self.cache, self.scales, self.windows[layer], []
        for rows in self.decodes:
            k, v = cache.gather(layer, rows.blocks)
            shape = (rows.end - rows.begin, -1, cache.heads, cache.head_dim)
            mine, mask = q[rows.begin : rows.end], rows.masks[window]
            found.append(attention.attend_decode(mine, k.view(shape), v.view(shape), mask, scales))
        found += [self.attend_row(layer, q, row) for row in self.prefills]
        return found[0] if len(found) == 1 else torch.cat(found)

    def attend_row(self, layer: int, q: Tensor, row: PrefillRow) -> Tensor:
        """Attend with one row of many queries: [queries, heads x head_dim]."""
        k, v = self.cache.gather(layer, row.blocks)
        mine, seen = q[row.begin : row.end], row.masks[self.windows[layer]]
        return attention.attend_prefill(mine, k[: row.keys], v[: row.keys], seen, self.scales)


class GatheredAttention:
    """Attention for any device. Rows of one query are computed in groups, padded to the longest
    row of the group. A row of many queries is computed separately."""

    def __init__(self, config: ModelConfig, cache: KVCache, tables: BlockTables) -> None:
        self.cache, self.gathering = cache, cache.gathering
        self._tables, self._scales, self._size = tables, config.scales, cache.block_size
        self._of_layer = tuple(each.window for each in config.layer_attention)
        self._device = cache.keys[0].device
        self._seen, self._unseen = cache.keys[0].new_tensor([0.0, -float("inf")]).unbind()

    def of_step(self, rows: StepRows) -> GatheredStep:
        """As Attention.of_step."""
        singles, size = rows.singles, self._size
        needs = -(-rows.keys[:singles] // size)
        decodes = tuple(
            DecodeRows(
                begin,
                end,
                self._tensor(self._tables.host[rows.slots[begin:end], : needs[end - 1]].ravel()),
                self._decode_masks(needs[end - 1] * size, rows.keys[begin:end]),
            )
            for begin, end in (self.gathering.groups(needs.tolist()) if singles else ())
        )
        prefills = tuple(self._prefill(rows, i) for i in range(singles, len(rows.slots)))
        return GatheredStep(self.cache, self._scales, self._of_layer, decodes, prefills)

    def _decode_masks(self, keys: int, lengths: Ints) -> dict[int, Tensor]:
        """For each window, the masks of rows whose one query is the last of `lengths` positions."""
        at, seen = np.arange(keys), lengths[:, None, None, None]
        return {
            window: self._mask((at < seen) & (at >= seen - window) if window else at < seen)
            for window in self.cache.windows
        }

    def _prefill(self, rows: StepRows, i: int) -> PrefillRow:
        begin, queries, start, keys = (
            int(column[i]) for column in (rows.begins, rows.queries, rows.starts, rows.keys)
        )
        table = self._tables.host[rows.slots[i], : -(-keys // self._size)]
        seen = np.minimum(np.arange(start, start + queries), keys - 1)
        masks = {window: self._prefill_mask(keys, seen, window) for window in self.cache.windows}
        return PrefillRow(begin, begin + queries, keys, self._tensor(table.copy()), masks)

    def _prefill_mask(self, keys: int, seen: Ints, window: int) -> Tensor | None:
        """The mask of queries that see keys up to positions `seen`, and back to the window's limit.

        None if the causal mask is enough: the row starts at position 0 and all keys are inside the
        window.
        """
        window = window if window < keys else 0
        if seen[0] == 0 and not window:
            return None
        at, last = np.arange(keys), seen[:, None]
        return self._mask((at <= last) & (at > last - window) if window else at <= last)

    def _mask(self, visible: NDArray[np.bool_]) -> Tensor:
        return torch.where(self._tensor(visible), self._seen, self._unseen)

    def _tensor(self, array: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
        return send_one(self._device, array)
