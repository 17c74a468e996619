"""The kernels: compiled where there is a GPU, else run by Triton's interpreter on the CPU."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session")
def stage():
    from headway.executor.torch.attention.paged import PagedAttention

    return lambda **shape: Stage(PagedAttention, **SHAPE | shape)


SHAPE = {
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "block": 4,
    "windows": (0,),
    "cap": 0.0,
    "dtype": torch.float32,
}


class Stage:
    """Random keys and values of rows in KV blocks of random order, and both attentions."""

    def __init__(self, paged, heads, kv_heads, head_dim, block, windows, cap, dtype):
        from headway.executor.torch.config.scales import Scales

        self.block, self.dtype, self.paged = block, dtype, paged
        self.stream = torch.Generator().manual_seed(5)
        self.config = SimpleNamespace(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            layers=len(windows),
            layer_attention=[SimpleNamespace(window=window) for window in windows],
            scales=Scales(head_dim**-0.5, cap),
        )

    def random(self, *shape):
        return torch.randn(shape, generator=self.stream).to(DEVICE, self.dtype)

    def lay_out(self, singles, many=()):
        """singles: rows of one query, by their number of keys. many: rows of (past, queries)."""
        from headway.executor.torch.attention.step_rows import StepRows
        from headway.executor.torch.memory.block_tables import BlockTables
        from headway.executor.torch.memory.kv_cache import KVCache

        keys = [*sorted(singles), *(past + queries for past, queries in many)]
        needs = [-(-each // self.block) for each in keys]
        cache = KVCache(self.config, sum(needs), self.block, self.dtype, DEVICE)
        for layer in range(self.config.layers):
            for cells in (cache.keys[layer], cache.values[layer]):
                cells.copy_(self.random(*cells.shape))
        tables = BlockTables(len(keys) + 1, max(needs), DEVICE)
        blocks = (torch.randperm(sum(needs), generator=self.stream) + 1).tolist()
        for slot, need in enumerate(needs, start=1):
            tables.extend(slot, tuple(blocks.pop() for _ in range(need)))
        queries = np.array([1] * len(singles) + [each for _, each in many])
        rows = StepRows(
            singles=len(singles),
            slots=np.arange(1, len(keys) + 1),
            begins=queries.cumsum() - queries,
            queries=queries,
            starts=np.array(keys) - queries,
            keys=np.array(keys),
        )
        return cache, tables, rows

    def both(self, cache, tables, rows, layer=0):
        """The results of torch's operators and of the kernels, for the same queries."""
        from headway.executor.torch.attention.gathered import GatheredAttention

        wide = self.config.heads + 2 * self.config.kv_heads  # queries are a view, as in the model
        q = self.random(rows.queries.sum(), wide, self.config.head_dim)[:, : self.config.heads]
        made = (each(self.config, cache, tables) for each in (GatheredAttention, self.paged))
        return [attention.of_step(rows).attend(layer, q).float() for attention in made]
