"""load_encoder: turns an encoder's checkpoint into an executor that is ready to compute."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.core.cost.gathering import UNPADDED, Gathering
from headway.core.cost.step_cost import Rounding
from headway.core.request import Pooling
from headway.errors import SettingError, UnsupportedModelError
from headway.executor.encoder.executor import EncoderExecutor
from headway.executor.encoder.families import (
    FAMILIES,
    check_positions,
    is_classifier,
    refusals,
)
from headway.executor.encoder.model import EncoderModel, Shapes, load_model, types_of
from headway.executor.precision import read_precision
from headway.executor.torch.config.config_reader import read_json
from headway.executor.torch.config.processor import has_fast_bfloat16
from headway.executor.torch.loading.dense import Dense, load_dense
from headway.executor.torch.loading.devices import device_of
from headway.executor.torch.loading.weight_bytes import stored_bytes
from headway.executor.torch.memory.free_memory import free_memory
from headway.executor.torch.memory.memory_plan import Limits, check_weights, human_bytes
from headway.executor.traits import OF_DECODERS
from headway.text.loaded_tokenizer import from_transformers
from headway.vectors.model_card import read_card

TYPES = "token_type_ids"  # transformers' name
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# The first is the default, for checkpoints that name no pooling.
POOLINGS = (Pooling.MEAN, Pooling.FIRST, *(each for each in OF_DECODERS if each != Pooling.MEAN))


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """The memory of an encoder, which keeps no KV. To the scheduler, each running prompt takes one
    block."""

    weights: int  # bytes
    num_blocks: int
    context: int  # tokens of a prompt
    per_block: int = 0

    @property
    def block_size(self) -> int:
        return self.context

    @property
    def fit(self) -> int:
        return self.num_blocks

    @property
    def summary(self) -> str:
        """The plan for people, in lines of less than 80 characters."""
        return f"memory: {human_bytes(self.weights)} weights; an encoder keeps no KV"

    def __str__(self) -> str:
        return self.summary


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """An encoder's executor, and what its user needs to know about it."""

    executor: EncoderExecutor
    plan: EncoderPlan
    folder: Path
    dtype: str
    device: str
    vocab: int
    eos: frozenset[int] = frozenset()
    threads: int = 0
    rounding: Rounding = Rounding()
    gathering: Gathering = UNPADDED


@dataclass(frozen=True, slots=True)
class EncoderParts:
    """What an encoder's folder holds."""

    model: EncoderModel
    dense: Dense
    separator: int  # the token before the second text of a pair; -1: pairs have no types
    context: int  # the most tokens of a text

    @property
    def nbytes(self) -> int:
        weights: int = self.model.nbytes
        return weights + self.dense.nbytes


def load_encoder(folder: Path, limits: Limits, dtype: str = "", device: str = "") -> LoadedEncoder:
    """Load an encoder's folder. dtype: float32 or bfloat16; empty: as stored, but bfloat16 for
    float16, and float32 for both on a CPU without fast bfloat16. device: torch's name; empty: cuda
    if there is one, else cpu.

    Raises CheckpointError, UnsupportedModelError, MemoryPlanError, SettingError or TokenizerError.
    """
    card, chosen = read_card(folder), device_of(device)
    name = dtype_of(read_json(folder / "config.json"), dtype, chosen.type)
    stored = stored_bytes(folder, DTYPES[name].itemsize)
    check_weights(stored, free_memory(chosen), chosen.type)  # before they are read
    parts = read_parts(folder, name, chosen)
    model, dense, classifier = parts.model, parts.dense, parts.model.is_classifier
    limits.left(model.nbytes, 0)  # raises if the weights are too large
    if limits.context > parts.context:
        raise SettingError(
            f"context {limits.context} is longer than the {parts.context} the model was made for"
        )
    own = (card.pooling,) if card.pooling else ()
    poolings = (Pooling.HEAD,) if classifier else tuple(dict.fromkeys([*own, *POOLINGS]))
    executor = EncoderExecutor(model, poolings, parts.separator, dense)
    blocks = limits.num_blocks or limits.sequences
    plan = EncoderPlan(parts.nbytes, blocks, limits.context or parts.context)
    return LoadedEncoder(executor, plan, folder, name, str(model.device), model.vocab)


def read_parts(
    folder: Path, dtype: str, device: torch.device, shapes: Shapes | None = None
) -> EncoderParts:
    """Read what an encoder's folder holds, and refuse what is not computed. dtype: from dtype_of.
    shapes: as in load_model. Raises as load_encoder does."""
    path = folder / "config.json"
    raw, card = read_json(path), read_card(folder)
    family, classifier = FAMILIES[raw["model_type"]], is_classifier(raw)
    if reasons := refusals(raw):
        raise UnsupportedModelError(f"{folder}: " + "; ".join(reasons))
    check_positions(raw, str(path))
    model = load_model(
        folder, family, classifier=classifier, dtype=DTYPES[dtype], device=device, shapes=shapes
    )
    dense = load_dense(folder, card.dense, model.hidden, device)
    separator = _separator(folder) if classifier and model.is_typed else -1
    most = min(model.context, card.max_tokens or model.context)
    return EncoderParts(model, dense, separator, most)


def _separator(folder: Path) -> int:
    """The token before the second text of a pair, whose tokens have type 1; -1: the tokenizer gives
    all tokens the same type. Raises TokenizerError or UnsupportedModelError."""
    words = from_transformers(folder)
    if TYPES not in words.model_input_names:
        return -1
    probe = words("a a", "a")
    ids, types = probe["input_ids"], probe[TYPES]
    if 1 not in types:
        return -1
    second = types.index(1)
    separator: int = ids[second - 1]
    if types_of(ids, separator) != types:
        raise UnsupportedModelError(f"{folder}: the types {types} of the tokens {ids} of a pair")
    return separator


def dtype_of(raw: Any, asked: str, device: str) -> str:
    """The dtype to compute in. Raises SettingError."""
    precision = read_precision(asked)
    if precision.quantize:
        raise SettingError(f"an encoder's weights are not quantized to {precision.quantize}")
    stored = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    quick = device != "cpu" or has_fast_bfloat16()
    half = "bfloat16" if quick else "float32"
    name = precision.dtype or (half if stored in ("float16", "bfloat16") else "float32")
    if name not in DTYPES:
        raise SettingError(f"dtype must be one of {', '.join(DTYPES)}, not {name}")
    return name
