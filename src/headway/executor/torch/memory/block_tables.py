"""BlockTables: the blocks of each slot's sequence, on the host and where attention reads them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.executor.torch.memory.transfer import send

Ints = NDArray[np.int64]


class BlockTables:
    """A row per slot.

    slot     blocks, 0 behind the last
    0      | 0 0 0 0 0 |   never extended: the scratch block throughout
    1      | 4 9 2 0 0 |
    2      | 5 0 0 0 0 |
    """

    def __init__(self, slots: int, width: int, device: torch.device) -> None:
        """width: the most blocks of a sequence."""
        self.host: Ints = np.zeros((slots, width), dtype=np.int64)
        self._counts = [0] * slots  # blocks in each table
        self._device = device
        self._changed: list[tuple[int, int, tuple[int, ...]]] = []  # slot, place, blocks
        self._there: Tensor | None = None  # made when it is first asked for

    def clear(self, slot: int) -> None:
        self.host[slot] = 0
        self._counts[slot] = 0

    def extend(self, slot: int, blocks: tuple[int, ...]) -> None:
        """Add blocks behind a slot's last."""
        begin = self._counts[slot]
        end = self._counts[slot] = begin + len(blocks)
        assert end <= self.host.shape[1], "a table holds a context's blocks and no more"
        self.host[slot, begin:end] = blocks
        if self._there is not None:
            self._changed.append((slot, begin, blocks))

    def grow(self) -> None:
        """Double the slots. If memory is short, nothing has changed."""
        self.host = np.concatenate([self.host, np.zeros_like(self.host)])
        self._counts += [0] * len(self._counts)

    def on_device(self) -> Tensor:
        """int32 [slots, width] on the device. Only what has changed since the last call is sent.

        Behind a sequence's last block there may be blocks that its slot had before.
        """
        if self._there is None or len(self._there) < len(self.host):
            self._there = send(self._device, self.host.astype(np.int32))[0]
        elif self._changed:
            width = self.host.shape[1]
            at = np.concatenate(
                [
                    np.arange(slot * width + begin, slot * width + begin + len(blocks))
                    for slot, begin, blocks in self._changed
                ]
            )
            values = np.array(
                [block for *_, blocks in self._changed for block in blocks], dtype=np.int32
            )
            # In their order: a slot that changed hands within a step has its new blocks last.
            at, newest = np.unique(at[::-1], return_index=True)
            there, blocks = send(self._device, at, values[::-1][newest])
            self._there.view(-1).index_copy_(0, there, blocks)
        self._changed.clear()
        return self._there
