"""attention_of: chooses the attention for a device."""

from importlib.util import find_spec

from headway.executor.torch.attention.attention import Attention
from headway.executor.torch.attention.cpu_attention import CpuAttention, attends
from headway.executor.torch.attention.gathered import GatheredAttention
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.memory.block_tables import BlockTables
from headway.executor.torch.memory.kv_cache import KVCache


def attention_of(config: ModelConfig, cache: KVCache, tables: BlockTables) -> Attention:
    """Our own kernels if the device has them; else torch's operators."""
    device = cache.keys[0].device.type
    if device == "cpu" and (found := kernels()) and attends(found, config.head_dim):
        return CpuAttention(config, cache, tables, found)
    if device == "cuda" and find_spec("triton") is not None:
        from headway.executor.torch.attention.paged import PagedAttention

        return PagedAttention(config, cache, tables)
    return GatheredAttention(config, cache, tables)
