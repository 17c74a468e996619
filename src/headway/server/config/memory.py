"""Divide a device's memory among several models (memory_shares), or refuse what does not fit.

Without `memory:`, the models of a device share its free memory. Each model gets its weights and an
equal part of the rest, but no more than its slots can use; what it cannot use is divided among the
other models (max-min fairness). This module imports no torch: another process reads a GPU's memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

from headway.errors import HeadwayError, MemoryPlanError
from headway.executor.encoder.families import is_encoder
from headway.executor.load import TORCH
from headway.executor.precision import ITEMSIZES
from headway.executor.torch.config.config_reader import read_json
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.config.stored_tensors import stored_tensors
from headway.executor.torch.loading.weight_bytes import stored_bytes, weight_bytes
from headway.executor.torch.memory.free_memory import DRIVERS, free_on_host
from headway.executor.torch.memory.memory_plan import (
    USABLE_SHARE,
    Limits,
    gather_budget,
    human_bytes,
    plan_memory,
)
from headway.server.config.config import ServerConfig

HOST = "cpu"
ENDLESS = 1 << 60  # bytes
FLOAT = 4  # bytes


@dataclass(frozen=True, slots=True)
class Need:
    """What a model needs of its device's memory, in bytes."""

    name: str
    weights: int
    least: int  # weights, a step's activations, and one block besides the scratch block
    most: int  # the most it can use: with as many blocks as its slots can fill
    fixed: int = 0  # set by `memory:`; 0: the share is computed


def divide(free: int, needs: Sequence[Need]) -> dict[str, int]:
    """Divide `free` bytes: the bytes of each model, by name. A pure function. Raises
    MemoryPlanError, which names what does not fit."""
    for each in needs:
        if each.fixed and each.fixed < each.least:
            raise MemoryPlanError(
                f"{each.name}: memory {human_bytes(each.fixed)} is less than the "
                f"{human_bytes(each.least)} that it needs"
            )
    if sum(each.fixed or each.least for each in needs) > free:
        parts = [f"{each.name} {human_bytes(each.fixed or each.least)}" for each in needs]
        raise MemoryPlanError(
            f"the models do not fit together: {', '.join(parts)} at least, and "
            f"{human_bytes(free)} are free"
        )
    left = free - sum(each.fixed for each in needs)
    flexible = [each for each in needs if not each.fixed]

    def given(level: int) -> dict[str, int]:
        """Each model's bytes if every model may have `level` bytes besides its weights."""
        return {
            each.name: min(each.most, max(each.least, each.weights + level)) for each in flexible
        }

    low, high = 0, free + 1  # bisection for the highest level that fits
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sum(given(middle).values()) <= left else (low, middle)
    return {each.name: each.fixed for each in needs if each.fixed} | given(low)


def memory_shares(
    config: ServerConfig,
    folder_of: Callable[[str], Path | None],
    free_on: Callable[[str], tuple[str, int]],
) -> dict[str, int]:
    """Bytes for each engine, by name; 0: it is alone and may take all free memory.

    folder_of: a checkpoint's folder, by its path; None: it is not here, so its needs count as 0.
    free_on: a device's kind and its free bytes. Raises MemoryPlanError.
    """
    if config.is_one and config.model.memory is None:
        return {} if config.model.function else {config.model.served_name: 0}
    devices: dict[str, list[ServerConfig]] = {}
    free: dict[str, int] = {}
    for entry in config.engines:
        kind, size = HOST, 0
        if not is_on_host(entry):
            kind, size = free_on(entry.model.device)
        free[kind] = size or free_on_host()
        devices.setdefault(kind, []).append(entry)
    shares: dict[str, int] = {}
    reserved = [model for model in config.functions if model.memory]
    for kind, entries in devices.items():
        size = free[kind]
        kept = {
            model.served_name: model.memory.of(size)
            for model in reserved
            if model.memory and kind == HOST
        }
        needs = list[Need]()
        for entry in entries:
            with named(entry.model.served_name):
                needs.append(_need(entry, folder_of(entry.model.path), kind, size))
        functions = [Need(name, 0, 0, part, part) for name, part in kept.items()]
        if len(needs) == 1 and not needs[0].fixed and not functions:
            divide(size, needs)  # raises
            shares[needs[0].name] = 0
        else:
            made = divide(size, [*needs, *functions])
            shares |= {each.name: made[each.name] for each in needs}
    return shares


@contextmanager
def named(name: str) -> Iterator[None]:
    """Prefix an error with the entry's name. Empty: there is only one entry, so no prefix."""
    try:
        yield
    except HeadwayError as error:
        if not name:
            raise
        raise type(error)(f"{name}: {error}") from error


def engines_beside(config: ServerConfig) -> int:
    """The number of engines that share the CPU, at least 1."""
    return max(1, sum(is_on_host(entry) for entry in config.engines))


def is_on_host(entry: ServerConfig) -> bool:
    """Whether the model runs on the CPU, as far as can be told without torch."""
    device = entry.model.device
    return device == HOST or (not device and not any(path.exists() for path in DRIVERS))


def _need(entry: ServerConfig, folder: Path | None, kind: str, free: int) -> Need:
    model = entry.model
    fixed = model.memory.of(free) if model.memory else 0
    if folder is None:
        return Need(model.served_name, 0, 0, ENDLESS, fixed)
    if entry.engine.executor != TORCH:
        weights = least = stored_bytes(folder, ITEMSIZES.get(model.dtype, 0))
        most = _vllm_most(entry, folder, kind)
    elif is_encoder(folder):
        weights = least = _encoder_weights(entry, folder)
        most = weights + int(_encoder_step(entry, folder) / USABLE_SHARE)
    else:
        weights, least, most = _decoder(entry, folder, kind)
    return Need(model.served_name, weights, least, most, fixed)


def _decoder(entry: ServerConfig, folder: Path, kind: str) -> tuple[int, int, int]:
    """A decoder's bytes: its weights, the least that it needs, and the most that it can use."""
    model, engine = read_config(folder), entry.engine
    precision = model.precision(entry.model.precision, kind.partition(":")[0])
    weights = weight_bytes(model, precision)
    sizes = engine.slots, engine.context, engine.tokens_per_block
    limits, budget = Limits.of(entry.policies, *sizes), gather_budget(kind.partition(":")[0])
    plan = plan_memory(model, limits, precision.itemsize, weights, ENDLESS, budget)
    least, most = (
        weights + int((plan.activations + blocks * plan.per_block) / USABLE_SHARE) + 1
        for blocks in (2, plan.usable + 1)  # one of them is the scratch block
    )
    return weights, least, most


def _encoder_weights(entry: ServerConfig, folder: Path) -> int:
    """Bytes of an encoder's weights. The default dtype depends on the device, so it counts as
    float32; only an explicit bfloat16 halves the bytes."""
    files = [stored_tensors(path) for path in folder.glob("*.safetensors")]
    numbers = sum(prod(each.shape) for tensors in files for each in tensors.values())
    return numbers * (FLOAT // 2 if entry.model.dtype == "bfloat16" else FLOAT)


def _encoder_step(entry: ServerConfig, folder: Path) -> int:
    """Rough bytes of an encoder's largest step: a layer's widest activations, for each token."""
    raw: Mapping[str, int] = read_json(folder / "config.json")
    hidden = raw.get("hidden_size") or raw.get("dim") or 1024
    inside = raw.get("intermediate_size") or raw.get("hidden_dim") or 4 * hidden
    return entry.policies.step_tokens * FLOAT * (8 * hidden + 3 * inside)


def _vllm_most(entry: ServerConfig, folder: Path, kind: str) -> int:
    try:
        return _decoder(entry, folder, kind)[2]
    except HeadwayError:  # a model that only vLLM knows
        return ENDLESS
