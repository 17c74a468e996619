"""What a checkpoint's config.json says of the model, read without running any of its code.

Everything that would change the answer is either understood here or refused by name: a model
that runs with one of its settings ignored is worse than one that does not run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError, UnsupportedModelError

Raw = Mapping[str, Any]  # a JSON object


@dataclass(frozen=True, slots=True)
class Family:
    """What a family fixes outside its config.json, and its defaults where that is silent."""

    model_type: str
    qkv_bias: bool = False  # always there, whatever `attention_bias` says
    qk_norm: bool = False  # RMSNorm over each query and key head, before rope
    head_dim: int = 0  # 0: hidden / heads
    sliding_window: int = 0  # if the key is absent; 0: none


FAMILIES = {
    "LlamaForCausalLM": Family("llama"),
    "MistralForCausalLM": Family("mistral", sliding_window=4096),
    "Qwen2ForCausalLM": Family("qwen2", qkv_bias=True),
    "Qwen3ForCausalLM": Family("qwen3", qk_norm=True, head_dim=128),
}

# What other models of these shapes have, and this decoder has not: key -> harmless values.
FOREIGN: dict[str, tuple[Any, ...]] = {
    "mlp_bias": (False, None),
    "quantization_config": (None,),
    "compression_config": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "partial_rotary_factor": (None, 1, 1.0),
    "attention_multiplier": (None,),
    "embedding_multiplier": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "logits_scaling": (None, 1, 1.0),
    "logit_scale": (None, 1, 1.0),
    "no_rope_layers": (None, []),
}


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding. factor 1: unscaled; else Llama 3's scaling by wavelength."""

    theta: float
    factor: float = 1.0
    low: float = 1.0  # wavelengths above original / low are stretched by the factor
    high: float = 4.0  # those below original / high are left alone
    original: int = 0  # context it was trained with before the stretching


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder, in the words of this package."""

    architecture: str
    hidden: int
    layers: int
    heads: int  # of queries
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    context: int  # positions it was made for
    rope: Rope
    eps: float  # of every RMSNorm
    tied: bool  # the head is the embedding
    qkv_bias: bool
    out_bias: bool
    qk_norm: bool
    dtype: str  # of the stored weights: float32, bfloat16 or float16
    eos: tuple[int, ...]  # every token that ends an answer, ascending

    @property
    def kv_elements(self) -> int:
        """Numbers kept per token, over all layers: one key and one value per KV head."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def read_config(folder: Path) -> ModelConfig:
    """Read `config.json` and `generation_config.json` of a checkpoint's folder.

    Raises CheckpointError if they are missing or make no sense, UnsupportedModelError (which
    names the key) if they ask for what this executor lacks.
    """
    raw = read_json(folder / "config.json")
    generation: Raw = {}
    if (folder / "generation_config.json").is_file():
        generation = read_json(folder / "generation_config.json")
    return parse(raw, generation, str(folder / "config.json"))


def read_json(path: Path) -> Raw:
    """Read one JSON object. Raises CheckpointError, naming the file."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: not a checkpoint's folder") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {first_line(error)}") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return raw


def first_line(error: BaseException) -> str:
    """An error's text as one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def parse(raw: Raw, generation: Raw, where: str = "config.json") -> ModelConfig:
    """Turn the two JSON objects into a ModelConfig; see read_config for what it raises."""
    architecture, family = _family(raw, where)
    _refuse(raw, family, where)
    hidden, heads = _int(raw, "hidden_size", where), _int(raw, "num_attention_heads", where)
    kv_heads = _int(raw, "num_key_value_heads", where, heads)
    head_dim = _int(raw, "head_dim", where, family.head_dim or hidden // heads)
    if heads % kv_heads:
        raise CheckpointError(f"{where}: {heads} heads are not a multiple of {kv_heads} KV heads")
    if head_dim % 2:
        raise CheckpointError(f"{where}: rotary embedding needs an even head_dim, not {head_dim}")
    bias = bool(raw.get("attention_bias", False)) and not family.qkv_bias
    return ModelConfig(
        architecture=architecture,
        hidden=hidden,
        layers=_int(raw, "num_hidden_layers", where),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=_int(raw, "intermediate_size", where),
        vocab=_int(raw, "vocab_size", where),
        context=_int(raw, "max_position_embeddings", where),
        rope=_rope(raw, where),
        eps=_number(raw, "rms_norm_eps", where, 1e-6),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=family.qkv_bias or bias,
        out_bias=bias,
        qk_norm=family.qk_norm,
        dtype=_dtype(raw, where),
        eos=_eos(raw, generation, where),
    )


def _family(raw: Raw, where: str) -> tuple[str, Family]:
    """Its architecture. Code that a checkpoint brings along is never run."""
    if raw.get("auto_map"):
        raise UnsupportedModelError(
            f"{where}: auto_map asks for code from the checkpoint; remote code is never run"
        )
    named = raw.get("architectures") or [
        name for name, family in FAMILIES.items() if family.model_type == raw.get("model_type")
    ]
    architecture = str(named[0]) if named else f"model_type {raw.get('model_type')!r}"
    if architecture not in FAMILIES:
        raise UnsupportedModelError(
            f"{where}: architecture {architecture} is not supported; those that are: "
            + ", ".join(FAMILIES)
        )
    return architecture, FAMILIES[architecture]


def _refuse(raw: Raw, family: Family, where: str) -> None:
    for key, harmless in FOREIGN.items():
        if key in raw and raw[key] not in harmless:
            raise UnsupportedModelError(f"{where}: {key} = {_short(raw[key])} is not supported")
    if (act := raw.get("hidden_act", "silu")) != "silu":
        raise UnsupportedModelError(f"{where}: hidden_act = {act!r} is not supported, only silu")
    odd = set(raw.get("layer_types") or ()) - {"full_attention"}
    if odd:
        raise UnsupportedModelError(
            f"{where}: layer_types {', '.join(map(str, sorted(odd)))} not supported, only "
            "full_attention (one group of KV blocks)"
        )
    # Qwen writes a window's size beside use_sliding_window = false, and means none.
    window = raw.get("sliding_window", family.sliding_window or None)
    used = raw.get("use_sliding_window", window is not None)
    context = raw.get("max_position_embeddings")
    # A window that holds the whole context masks nothing.
    if used and window and not (isinstance(context, int) and window >= context):
        raise UnsupportedModelError(f"{where}: sliding_window = {window} is not supported")


def _rope(raw: Raw, where: str) -> Rope:
    """transformers 4 writes rope_theta and rope_scaling, transformers 5 one rope_parameters."""
    asked: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        if not isinstance(part := raw.get(key) or {}, dict):
            raise CheckpointError(f"{where}: {key} is no JSON object")
        asked |= part
    kind = asked.get("rope_type", asked.get("type", "default"))
    nested = [key for key, value in asked.items() if isinstance(value, dict)]
    if nested or asked.get("partial_rotary_factor", 1) != 1:
        odd = f"{nested[0]} of its own" if nested else "partial_rotary_factor"
        raise UnsupportedModelError(f"{where}: rope_parameters with {odd} are not supported")
    theta = _number(asked, "rope_theta", where, raw.get("rope_theta") or 10_000.0)
    if kind == "default":
        return Rope(theta)
    if kind != "llama3":
        raise UnsupportedModelError(
            f"{where}: rope type {kind!r} is not supported, only default and llama3"
        )
    return Rope(
        theta,
        _number(asked, "factor", where),
        _number(asked, "low_freq_factor", where),
        _number(asked, "high_freq_factor", where),
        _int(asked, "original_max_position_embeddings", where),
    )


def _dtype(raw: Raw, where: str) -> str:
    name = str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch.")
    if name not in ("float32", "bfloat16", "float16"):
        raise UnsupportedModelError(f"{where}: dtype {name} is not supported")
    return name


def _eos(raw: Raw, generation: Raw, where: str) -> tuple[int, ...]:
    """Both files count: instruct checkpoints name <|eot_id|> and the like in the second only."""
    found: set[int] = set()
    for value in (raw.get("eos_token_id"), generation.get("eos_token_id")):
        for token in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(token, bool) or not isinstance(token, int):
                raise CheckpointError(f"{where}: eos_token_id {_short(token)} is not a token id")
            found.add(token)
    return tuple(sorted(found))


def _int(raw: Raw, key: str, where: str, default: int | None = None) -> int:
    value = default if raw.get(key) is None else raw[key]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise CheckpointError(f"{where}: {key} = {_short(value)} must be a positive integer")
    return value


def _number(raw: Raw, key: str, where: str, default: float | None = None) -> float:
    value = default if raw.get(key) is None else raw[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise CheckpointError(f"{where}: {key} = {_short(value)} must be a positive number")
    return float(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
