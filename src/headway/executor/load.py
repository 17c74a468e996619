"""load: load a model into the named executor. An executor is imported only if it is used."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headway.errors import SettingError, did_you_mean
from headway.executor.encoder.families import is_encoder
from headway.executor.loaded import Loaded
from headway.executor.precision import read_precision
from headway.executor.torch.memory.memory_plan import Limits
from headway.executor.traits import OURS, Traits
from headway.executor.vllm.traits import VLLM_TRAITS

TORCH, VLLM = "torch", "vllm"
BLOCK_SIZES = {TORCH: 16, VLLM: 32}  # default tokens; vLLM's CPU kernels take multiples of 32
EXECUTORS = tuple(BLOCK_SIZES)


def check_executor(
    name: str, options: Mapping[str, Any], adapters: Collection[str] = (), dtype: str = ""
) -> None:
    """Raise SettingError for an unknown executor, or for options, LoRA adapters (their names) or a
    dtype that the executor does not take.

    vLLM's own options are checked when it is loaded.
    """
    if name not in EXECUTORS:
        raise SettingError(
            f"there is no executor {name!r}{did_you_mean(name, EXECUTORS)}: "
            f"it is one of {', '.join(EXECUTORS)}"
        )
    if options and name != VLLM:
        raise SettingError(f"options of vLLM ({', '.join(options)}) need the executor {VLLM}")
    if (quantize := read_precision(dtype).quantize) and name != TORCH:
        raise SettingError(
            f"quantize {quantize} needs the executor {TORCH}; vLLM has its own quantization"
        )
    traits_of(name).check_adapters(adapters)


def traits_of(name: str) -> Traits:
    """The traits of an executor as far as they are known before it is loaded."""
    return VLLM_TRAITS if name == VLLM else OURS


def load(
    executor: str,
    source: str | Path,
    limits: Limits,
    dtype: str = "",
    device: str = "",
    options: Mapping[str, Any] = {},
    adapters: Mapping[str, str] = {},
) -> Loaded:
    """Load a checkpoint into an executor. options: for vLLM. adapters: folders of LoRA adapters, by
    name. Raises what check_executor and the executor's own `load` raise."""
    check_executor(executor, options, adapters, dtype)
    if executor == VLLM:
        from headway.executor.vllm.load import load as load_vllm

        return load_vllm(source, limits, dtype, device, options, adapters=adapters)
    from headway.executor.torch.loading.checkpoint import locate  # the settings need none of it

    folder = locate(source)
    if is_encoder(folder):
        from headway.executor.encoder.load import load_encoder

        return load_encoder(folder, limits, dtype, device)
    from headway.executor.torch.load import load as load_torch

    return load_torch(folder, limits, dtype, device)
