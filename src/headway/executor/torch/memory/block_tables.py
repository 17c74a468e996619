"""BlockTables: the block table of each slot, on the host and on the device."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.executor.torch.memory.transfer import send

Ints = NDArray[np.int64]


class BlockTables:
    """One row per slot.

    slot     blocks, 0 after the last
    0      | 0 0 0 0 0 |   never extended: all scratch block
    1      | 4 9 2 0 0 |
    2      | 5 0 0 0 0 |
    """

    def __init__(self, slots: int, width: int, device: torch.device) -> None:
        """width: the most blocks of a sequence."""
        self.host: Ints = np.zeros((slots, width), dtype=np.int64)
        self._counts = [0] * slots  # blocks in each table
        self._device = device
        self._changed: list[tuple[int, int, tuple[int, ...]]] = []  # slot, place, blocks
        self._there: Tensor | None = None  # the device's copy, made at the first request

    def clear(self, slot: int) -> None:
        self.host[slot] = 0
        self._counts[slot] = 0

    def extend(self, slot: int, blocks: tuple[int, ...]) -> None:
        """Append blocks to a slot's table."""
        begin = self._counts[slot]
        end = self._counts[slot] = begin + len(blocks)
        assert end <= self.host.shape[1], "a table holds a context's blocks and no more"
        self.host[slot, begin:end] = blocks
        if self._there is not None:
            self._changed.append((slot, begin, blocks))

    def grow(self) -> None:
        """Double the slots. If memory runs out, nothing has changed."""
        self.host = np.concatenate([self.host, np.zeros_like(self.host)])
        self._counts += [0] * len(self._counts)

    def on_device(self) -> Tensor:
        """The tables on the device, int32 [slots, width]. Only changes since the last call are
        sent.

        After a sequence's last block there may be stale blocks of the slot's previous sequence.
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
            # The last change to a place wins: a slot may have changed hands since the last call.
            at, newest = np.unique(at[::-1], return_index=True)
            there, blocks = send(self._device, at, values[::-1][newest])
            self._there.view(-1).index_copy_(0, there, blocks)
        self._changed.clear()
        return self._there
