"""load: turns a checkpoint's name into an executor that is ready to compute."""

from dataclasses import dataclass
from pathlib import Path

import torch

from headway.core.cost.gathering import Gathering
from headway.core.cost.step_cost import Rounding
from headway.executor.precision import Precision
from headway.executor.torch.config.model_config import ModelConfig, read_config
from headway.executor.torch.cpu.huge_pages import collapse_later
from headway.executor.torch.decoder import Decoder
from headway.executor.torch.loading.checkpoint import locate
from headway.executor.torch.loading.dense import Dense, load_dense
from headway.executor.torch.loading.devices import device_of
from headway.executor.torch.loading.weight_bytes import second_head_bytes, weight_bytes
from headway.executor.torch.loading.weights import Weights, load_weights, random_weights
from headway.executor.torch.memory.free_memory import free_memory
from headway.executor.torch.memory.kv_cache import KVCache
from headway.executor.torch.memory.memory_plan import (
    Limits,
    MemoryPlan,
    check_weights,
    gather_budget,
    plan_memory,
)
from headway.executor.torch.runner import NO_LAYERS, TorchExecutor
from headway.vectors.model_card import read_card

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """An executor, and what its user needs to know about it."""

    executor: TorchExecutor
    config: ModelConfig
    plan: MemoryPlan  # blocks, block size and context, for the scheduler
    folder: Path  # of the checkpoint, tokenizer included; empty: random weights
    dtype: str  # the compute dtype, with +int8 if the weights are in 8 bits
    device: str

    @property
    def vocab(self) -> int:
        return self.config.vocab

    @property
    def eos(self) -> frozenset[int]:
        return frozenset(self.config.eos)

    @property
    def threads(self) -> int:
        return 0

    @property
    def rounding(self) -> Rounding:
        return self.executor.model.rounding

    @property
    def gathering(self) -> Gathering:
        return self.executor.attention.gathering


def load(
    source: str | Path, limits: Limits = NO_LIMITS, dtype: str = "", device: str = ""
) -> LoadedModel:
    """Load a Hugging Face checkpoint: a folder, or a model's id on the hub.

    dtype: float32 or bfloat16; empty: as stored, but bfloat16 for float16, and float32 for both
    on a CPU without products in bfloat16. With +int8, on a CPU, matrices are kept in 8 bits.
    device: torch's name; empty: cuda if there is one, else cpu.

    Raises CheckpointError, UnsupportedModelError, MemoryPlanError or SettingError.
    """
    folder = locate(source)
    config, card = read_config(folder), read_card(folder)
    chosen = device_of(device)
    precision = config.precision(dtype, chosen.type)
    _check_room(config, precision, chosen)
    kind, quantized = DTYPES[precision.dtype], bool(precision.quantize)
    dense = load_dense(folder, card.dense, config.hidden, chosen)
    weights = load_weights(folder, config, kind, chosen, quantized)
    return _assemble(config, weights, limits, folder, precision, dense)


def load_random(
    config: ModelConfig, limits: Limits = NO_LIMITS, dtype: str = "", device: str = ""
) -> LoadedModel:
    """Load random weights of a config's shapes, for benchmarks. Raises as `load` does."""
    chosen = device_of(device)
    precision = config.precision(dtype, chosen.type)
    _check_room(config, precision, chosen)
    kind, quantized = DTYPES[precision.dtype], bool(precision.quantize)
    weights = random_weights(config, kind, chosen, quantized)
    return _assemble(config, weights, limits, Path(), precision)


def _check_room(config: ModelConfig, precision: Precision, device: torch.device) -> None:
    """Raise MemoryPlanError before weights are read for which there is no room. If memory ran out
    while they are read, the system would end the process."""
    taken = weight_bytes(config, precision) + second_head_bytes(config, precision, device.type)
    check_weights(taken, free_memory(device), device.type)


def _assemble(
    config: ModelConfig,
    weights: Weights,
    limits: Limits,
    folder: Path,
    precision: Precision,
    dense: Dense = NO_LAYERS,
) -> LoadedModel:
    dtype, device = weights.embed.dtype, weights.embed.device
    plan = plan_memory(
        config,
        limits,
        dtype.itemsize,
        weights.nbytes + dense.nbytes,
        free_memory(device),
        gather_budget(device.type),
    )
    cache = KVCache(config, plan.num_blocks, plan.block_size, dtype, device)
    if device.type == "cpu":
        collapse_later(weights.parts())
    decoder = Decoder(config, weights, plan.context)
    executor = TorchExecutor(decoder, cache, plan.context, folder, dense=dense)
    return LoadedModel(executor, config, plan, folder, str(precision), str(device))
