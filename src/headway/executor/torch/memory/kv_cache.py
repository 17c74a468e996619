"""Paged KV memory: keys and values by block, as PagedAttention keeps them (vLLM, SOSP 2023)."""

import torch
from torch import Tensor

from headway.core.blocks import SCRATCH
from headway.core.cost.gathering import Gathering
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.memory.memory_plan import gather_budget


class KVCache:
    """Two tensors per layer, keys and values: [cells, kv_heads, head_dim].

    cell = block x block_size + offset

    | block 0: scratch     | block 1              | ... | block num_blocks     |
    | cell 0 .. size - 1   | size .. 2 size - 1   |     |                      |

    All KV heads of a token lie together, so a block is one contiguous run of memory and the
    gathering of a sequence copies whole blocks. Padding and held slots write to scratch. Every
    cell is a finite number at all times: it may be gathered as padding, where its weight is 0,
    and 0 x NaN would be NaN.

    There is one group of blocks: a layer with a sliding window keeps what lies outside of it
    too, and a mask hides it from its queries. The answer is the window's; memory is not saved.
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
        # How far back layers look, 0: to the beginning. All of them keep all of the past.
        self.windows = sorted({layer.window for layer in config.layer_attention})
        shape = ((num_blocks + 1) * block_size, config.kv_heads, config.head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        # Where gathered blocks go, the same memory for every layer: fresh memory of this size
        # comes from the system page by page, which took up to three times as long.
        self._work = torch.empty(0, 0, dtype=dtype, device=device)

        pair = 2 * self.keys[0][:block_size].nbytes  # a block's keys and values of one layer
        self.gathering = Gathering(block_size, max(1, gather_budget(device.type) // pair))

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (*self.keys, *self.values))

    def write(self, layer: int, cells: Tensor, keys: Tensor, values: Tensor) -> None:
        """Keep keys and values [n, kv_heads, head_dim] of one layer in cells [n]."""
        self.keys[layer].index_copy_(0, cells, keys)
        self.values[layer].index_copy_(0, cells, values)

    def gather(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of blocks [n], end to end: two of [n x block_size, kv_heads, head_dim].

        They stand in the work space: good until the next call.
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
