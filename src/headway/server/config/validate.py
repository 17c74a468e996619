"""Check a configuration's files, folders and memory before anything is loaded.

It imports no torch, fetches nothing and writes nothing.
"""

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from headway.errors import CheckpointError, MemoryPlanError, SettingError

try:
    from headway.executor.torch.loading.checkpoint import Checkpoint, local_folder
except ModuleNotFoundError as missing:
    raise SettingError(
        f"looking into a checkpoint needs {missing.name}: pip install 'headway[torch]'"
    ) from missing
from headway.costing.calibration import read_cost_file
from headway.executor.encoder.families import is_encoder
from headway.executor.load import TORCH
from headway.executor.torch.config.model_config import read_config
from headway.executor.torch.loading.tensor_names import tensor_shapes
from headway.executor.torch.loading.weight_bytes import weight_bytes
from headway.executor.torch.memory.free_memory import DRIVERS, free_on_host, measure
from headway.executor.torch.memory.memory_plan import (
    Limits,
    check_weights,
    gather_budget,
    plan_memory,
)
from headway.journal.file import check as check_journal
from headway.models import EMBEDDED, display_name
from headway.server.config.config import ServerConfig
from headway.server.config.memory import memory_shares, named
from headway.server.config.references import check_function
from headway.vectors.model_card import read_card

TOKENIZER = "tokenizer.json"
DEVICE = re.compile(r"(cpu|cuda)(:[0-9]+)?")  # of the executor torch


def check_files(config: ServerConfig) -> tuple[str, ...]:
    """Check the files that a configuration names. Returns a note on each thing left unchecked.

    Raises HeadwayError if an engine could not start: CheckpointError, JournalError or SettingError.
    If there are several entries, the error names the entry.
    """
    notes = list[str]()
    for entry in config.entries:
        with named(entry.model.served_name if len(config.models) > 1 else ""):
            notes += _check_entry(entry)
    for model in config.functions:
        with named(model.served_name):
            notes.append(check_function(model.function))
    for name, route in config.routes.items():
        for function in route.functions:
            with named(name):
                notes.append(check_function(function))
    return tuple(notes)


def _check_entry(config: ServerConfig) -> tuple[str, ...]:
    engine, device = config.engine, config.model.device
    if device and engine.executor == TORCH and not DEVICE.fullmatch(device):
        raise SettingError(f"a device is cpu, cuda or cuda:N, not {device!r}")
    if engine.journal:
        check_journal(Path(engine.journal), new=False)
    folder = checkpoint_folder(config.model.path)
    if folder:
        if engine.executor == TORCH:
            _check_checkpoint(folder)
        if not (folder / TOKENIZER).is_file():
            raise CheckpointError(f"{folder} has no {TOKENIZER}")
    if engine.cost:
        cost = read_cost_file(Path(engine.cost))
        cost.check_model(display_name(config.model.path or None), executor=engine.executor)
        if device and not cost.analytical:
            cost.check_device(device)
        if config.policies.predicting and not cost.cost.is_known:
            raise SettingError(f"{engine.cost} prices every step at nothing: calibrate again")
    if engine.executor != TORCH:
        return ("vLLM checks the model and its options only when the server starts",)
    if folder:
        return ()
    return (f"{config.model.path} is not a folder here: it is looked up on the hub at the start",)


def _check_checkpoint(folder: Path) -> None:
    if is_encoder(folder):
        read_card(folder)
        return
    Checkpoint(folder, tensor_shapes(read_config(folder)), framework="np").close()


def check_memory(config: ServerConfig) -> None:
    """Raise MemoryPlanError or SettingError if the limits do not fit the free memory, for one model
    or for several together.

    A single model is checked only on the CPU: only torch knows the memory of other devices.
    """
    shares = shares_of(config, checkpoint_folder)
    for entry in config.engines:
        with named(entry.model.served_name if not config.is_one else ""):
            _check_memory(entry, shares[entry.model.served_name])


def shares_of(config: ServerConfig, folder_of: Callable[[str], Path | None]) -> dict[str, int]:
    """As memory_shares. Another process reads a GPU's memory."""

    def free_on(device: str) -> tuple[str, int]:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(measure, device).result()

    return memory_shares(config, folder_of, free_on)


def _check_memory(config: ServerConfig, share: int) -> None:
    """Check one engine's limits. share: bytes that it may take; 0: all free memory."""
    folder, device = checkpoint_folder(config.model.path), config.model.device
    elsewhere = any(path.exists() for path in DRIVERS) if not device else device != "cpu"
    if folder is None or config.engine.executor != TORCH:
        return
    if is_encoder(folder):  # it keeps no KV
        return
    model, free = read_config(folder), free_on_host()
    if device:
        model.precision(config.model.precision, device.partition(":")[0])
    if elsewhere:
        return
    precision = model.precision(config.model.precision, "cpu")
    itemsize, weights = precision.itemsize, weight_bytes(model, precision)
    check_weights(weights, free, "cpu")
    engine = config.engine
    sizes = engine.slots, engine.context, engine.tokens_per_block, share
    limits = Limits.of(config.policies, *sizes)
    try:
        plan = plan_memory(model, limits, itemsize, weights, free - weights, gather_budget("cpu"))
    except MemoryPlanError as error:
        raise MemoryPlanError(f"engine.slots {engine.slots}: {error}") from None
    config.check_shares(plan.num_blocks)


def checkpoint_folder(path: str) -> Path | None:
    """The checkpoint's folder; None for a hub id. Raises CheckpointError if the path is neither, or
    if the folder cannot be read."""
    return local_folder(path or EMBEDDED)
