"""KVCache: keys and values in blocks, as in PagedAttention (vLLM, SOSP 2023)."""

import mmap
from contextlib import suppress
from math import prod

import torch
from torch import Tensor

from headway.core.cost.gathering import Gathering
from headway.core.kv.blocks import SCRATCH
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.memory.memory_plan import gather_budget


class KVCache:
    """Two tensors per layer, keys and values: [cells, kv_heads, head_dim].

    cell = block x block_size + offset

    | block 0: scratch     | block 1              | ... | block num_blocks     |
    | cell 0 .. size - 1   | size .. 2 size - 1   |     |                      |

    A token's KV heads are contiguous, and so is a block: a sequence is gathered by copying whole
    blocks. Padding and held slots write to the scratch block. Every cell is finite at all times: it
    may be gathered as padding with weight 0, and 0 x NaN would be NaN.

    All layers have the same blocks. A layer with a sliding window keeps the keys outside the window
    too, and a mask hides them. So a window saves no memory.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        assert SCRATCH == 0
        self.num_blocks, self.block_size = num_blocks, block_size
        self.heads, self.head_dim = config.kv_heads, config.head_dim
        # The layers' distinct windows, ascending; 0: no window.
        self.windows = sorted({layer.window for layer in config.layer_attention})
        shape = ((num_blocks + 1) * block_size, config.kv_heads, config.head_dim)
        self.keys = [_zeros(shape, dtype, device) for _ in range(config.layers)]
        self.values = [_zeros(shape, dtype, device) for _ in range(config.layers)]
        # Gathered blocks go here, for every layer. New memory of this size would come from the
        # system page by page, which took up to three times as long.
        self._work = torch.empty(0, 0, dtype=dtype, device=device)

        pair = 2 * self.keys[0][:block_size].nbytes  # one layer's keys and values of a block
        self.gathering = Gathering(block_size, max(1, gather_budget(device.type) // pair))

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (*self.keys, *self.values))

    def write(self, layer: int, cells: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write one layer's keys and values [n, kv_heads, head_dim] to cells [n]."""
        self.keys[layer].index_copy_(0, cells, keys)
        self.values[layer].index_copy_(0, cells, values)

    def gather(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Copy blocks [n] end to end; return keys and values [n x block_size, kv_heads, head_dim].

        Both are views of the work space, valid until the next call.
        """
        count = blocks.numel()
        width = self.block_size * self.heads * self.head_dim
        if self._work.shape[-1] < count * width:
            self._work = self._work.new_empty(2, count * width)
        found = []
        for source, space in zip((self.keys[layer], self.values[layer]), self._work, strict=True):
            out = space[: count * width].view(count, width)
            torch.index_select(source.view(-1, width), 0, blocks, out=out)
            found.append(out.view(-1, self.heads, self.head_dim))
        return found[0], found[1]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of zeros. On a CPU, the system clears each page when it is first touched: clearing
    all pages at once took six of the nine seconds of loading a small model."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, prod(shape) * dtype.itemsize)  # the tensor keeps it alive
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype).view(shape)
