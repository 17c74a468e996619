"""load: turns a checkpoint's name into an executor whose workers are vLLM's."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.cost.step_cost import Rounding
from headway.errors import CheckpointError, HeadwayError, SettingError, first_line
from headway.executor.grammars.grammar import GrammarCompiler
from headway.executor.torch.loading.checkpoint import locate
from headway.executor.torch.loading.weight_bytes import stored_bytes
from headway.executor.torch.memory.free_memory import free_on_host
from headway.executor.torch.memory.memory_plan import (
    USABLE_SHARE,
    Limits,
    check_weights,
    human_bytes,
)
from headway.executor.vllm.adapters import Adapter, add_adapters, check_fits, read_adapters
from headway.executor.vllm.engine_args import engine_args, first_cause, prepare_environment
from headway.executor.vllm.runner import VllmExecutor
from headway.executor.vllm.traits import VLLM_TRAITS

MISSING = (
    "the executor vllm needs vLLM, in an environment of its own: pip install 'headway[vllm]', or "
    "make vllm for CPUs (docs/executors.md)"
)


@dataclass(frozen=True, slots=True)
class VllmPlan:
    """The memory as vLLM has divided it, summed over all tensor-parallel ranks. Sizes in bytes.
    str() is one line for people."""

    weights: int
    per_block: int  # KV, all layers, all ranks
    block_size: int  # tokens
    num_blocks: int  # blocks for sequences
    context: int  # tokens that a sequence may hold
    ranks: int = 1

    @property
    def fit(self) -> int:
        return self.num_blocks

    @property
    def summary(self) -> str:
        """The plan for people, in lines of less than 80 characters."""
        kv = human_bytes(self.num_blocks * self.per_block)
        among = f" among {self.ranks} ranks" if self.ranks > 1 else ""
        return (
            f"memory, as vLLM divides it{among}: {human_bytes(self.weights)} weights\n"
            f"KV {kv}: {self.num_blocks} blocks of {self.block_size} tokens"
        )

    def __str__(self) -> str:
        return self.summary.replace("\n", ", ")


@dataclass(frozen=True, slots=True)
class LoadedVllm:
    """A model in vLLM's workers."""

    executor: VllmExecutor
    plan: VllmPlan
    folder: Path
    dtype: str
    device: str
    vocab: int
    eos: frozenset[int]
    threads: int  # of each worker
    rounding: Rounding = Rounding()
    gathering: Gathering = UNPADDED


def load(
    source: str | Path,
    limits: Limits,
    dtype: str = "",
    device: str = "",
    options: Mapping[str, Any] = {},
    most_context: int = 0,
    adapters: Mapping[str, str] = {},
) -> LoadedVllm:
    """Load a checkpoint, a folder or a model's id on the hub, into vLLM's workers.

    dtype: vLLM's name of it; empty: vLLM chooses. device: must be the kind that this build of vLLM
    runs on; empty: that kind. options: arguments of vLLM's engine, by vLLM's names. most_context:
    caps a sequence's tokens if the limits set no context; 0: only the model's cap. adapters:
    folders or hub ids of LoRA adapters, by name.

    Raises SettingError, CheckpointError or MemoryPlanError; HeadwayError if vLLM cannot load.
    """
    if limits.policies:
        VLLM_TRAITS.check_policies(limits.policies)
    prepare_environment()
    try:
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor import Executor
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "vllm":
            raise SettingError(MISSING) from error
        raise SettingError(f"vLLM cannot be imported: {first_line(error)}") from error
    folder = locate(source)
    found = read_adapters(adapters)
    check_fits(found, folder)
    args = engine_args(folder, limits, dtype, options, found)
    config = _config(args, limits, most_context)
    _check(config, device)
    if not {"kv_cache_memory_bytes", "gpu_memory_utilization"} & set(options):
        _limit_memory(config, limits, folder)
    try:
        core = EngineCore(config, Executor.get_class(config), log_stats=False)
    except Exception as error:  # of any kind: vLLM's own words say what is wrong
        raise HeadwayError(f"vLLM cannot load {source}: {first_cause(error)}") from error
    try:
        add_adapters(core.model_executor, found)
        return _loaded(core, config, folder, found)
    except BaseException:
        core.shutdown()
        raise


def _config(args: Any, limits: Limits, most_context: int) -> Any:
    """Make vLLM's configuration. Raises CheckpointError if vLLM refuses the model or options."""
    try:
        context = args.create_model_config().max_model_len
        if most_context and not args.max_model_len:
            args.max_model_len = context = min(context, most_context)
        args.max_num_batched_tokens = max(limits.cells(context), limits.sequences)
        return args.create_engine_config()
    except Exception as error:
        raise CheckpointError(f"vLLM refuses {args.model}: {first_cause(error)}") from error


def _check(config: Any, device: str) -> None:
    """Raise SettingError for a device or model that headway cannot drive through vLLM."""
    kind = config.device_config.device_type
    if device and device != kind:
        raise SettingError(f"this build of vLLM runs on {kind}, not on {device}")
    if config.model_config.is_multimodal_model:
        raise SettingError("models that take images or sound are not served through vLLM yet")
    if config.model_config.runner_type != "generate":
        raise SettingError("models that generate nothing are not served through vLLM yet")
    if config.model_config.has_inner_state:
        raise SettingError(
            "models with layers that keep a state instead of keys and values, as Mamba and hybrid "
            "ones have, are not served through vLLM yet"
        )


def _limit_memory(config: Any, limits: Limits, folder: Path) -> None:
    """Limit vLLM's memory: by default it would take nearly all of the machine's.

    On a CPU, the KV memory gets what the slots can use, but no more than is free and allowed by the
    limits. On a GPU, vLLM as a whole gets limits.memory, if set. Raises MemoryPlanError.
    """
    cache, kind = config.cache_config, config.device_config.device_type
    if kind == "cuda" and limits.memory:
        from vllm.platforms import current_platform

        total = current_platform.get_device_total_memory()
        cache.gpu_memory_utilization = min(1.0, limits.memory / total)
    if kind != "cpu" or cache.kv_cache_memory_bytes is not None:  # set: VLLM_CPU_KVCACHE_SPACE
        return
    model, parallel = config.model_config, config.parallel_config
    block = cache.block_size
    token = 2 * model.get_num_layers(parallel) * model.get_num_kv_heads(parallel)
    token *= model.get_head_size() * model.dtype.itemsize
    blocks = limits.num_blocks or limits.sequences * -(-model.max_model_len // block)
    wanted = (blocks + 1) * block * token
    weights = _stored(model, folder)
    free = free_on_host()  # the weights, which are not loaded yet, take their part of it
    check_weights(weights, free, kind)
    left = int(USABLE_SHARE * limits.left(weights, free - weights))
    cache.kv_cache_memory_bytes = min(wanted, left // parallel.tensor_parallel_size)  # of a rank


def _stored(model: Any, folder: Path) -> int:
    """Bytes of the weights by the checkpoint's files. model: vLLM's configuration of it."""
    return stored_bytes(folder, 0 if model.quantization else model.dtype.itemsize)


def _loaded(core: Any, config: Any, folder: Path, adapters: Sequence[Adapter]) -> LoadedVllm:
    groups = core.scheduler.kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise SettingError(f"{folder} needs {len(groups)} groups of KV blocks; headway has one")
    model, cache = config.model_config, config.cache_config
    kind = config.device_config.device_type
    vocab, eos = model.get_vocab_size(), _eos(model)
    grammars = GrammarCompiler(folder, vocab, eos)
    ask = core.model_executor.collective_rpc
    ask("headway_ignore_signals", args=(os.getpid(), _ignored()))
    ask("headway_leave_out_ranks")
    block, threads = cache.block_size, ask("headway_threads")[0]
    # On a CPU, vLLM packs matrices anew, and its workers do not count them any more.
    weights = max(sum(ask("headway_weights")), _stored(model, folder) if kind == "cpu" else 0)
    blocks = cache.num_gpu_blocks - 1  # block 0 is reserved, in vLLM as in headway
    ranks = config.parallel_config.tensor_parallel_size
    per_block = ranks * groups[0].kv_cache_spec.page_size_bytes * len(groups[0].layer_names)
    return LoadedVllm(
        executor=VllmExecutor(core, replace(VLLM_TRAITS, block_multiple=block), grammars, adapters),
        plan=VllmPlan(weights, per_block, block, blocks, model.max_model_len, ranks),
        folder=folder,
        dtype=str(model.dtype).removeprefix("torch."),
        device=kind,
        vocab=vocab,
        eos=eos,
        threads=threads,
    )


def _ignored() -> tuple[int, ...]:
    """The signals that the workers must ignore: SIGINT, which this process handles itself, and
    SIGTERM if this process ignores it. Otherwise SIGTERM must end the workers: it is what ends
    them if this process ends without closing them."""
    ignores_both = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignores_both else (signal.SIGINT,)


def _eos(model: Any) -> frozenset[int]:
    """The tokens that end an answer, from the model's config and its generation config."""
    found = set[int]()
    generation = model.try_get_generation_config()
    for value in (
        getattr(model.hf_text_config, "eos_token_id", None),
        generation.get("eos_token_id"),
    ):
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(found)
