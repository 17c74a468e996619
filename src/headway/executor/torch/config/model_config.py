"""ModelConfig: the shape of a model, from config.json, without running the checkpoint's code.

A setting that changes the answer is either obeyed or refused by name. Running a model with a
setting ignored is worse than not running it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from headway.errors import CheckpointError, SettingError, UnsupportedModelError
from headway.executor.precision import ITEMSIZES, Precision, read_precision
from headway.executor.torch.config.config_reader import ConfigReader, Raw, shortened
from headway.executor.torch.config.families import (
    CAUSAL,
    FAMILIES,
    OPTIONAL_KEYS,
    SCORES,
    Family,
    family_of,
)
from headway.executor.torch.config.files import CONFIG, GENERATION, read_files
from headway.executor.torch.config.labels import read_labels
from headway.executor.torch.config.modules import longest_text, read_answer_tokens
from headway.executor.torch.config.positions import (
    LayerAttention,
    LongRopeScaling,
    read_layer_attention,
)
from headway.executor.torch.config.processor import has_fast_bfloat16
from headway.executor.torch.config.scales import Scales, read_scales

Activation = Literal["silu", "gelu_pytorch_tanh"]
ACTIVATIONS: tuple[Activation, ...] = ("silu", "gelu_pytorch_tanh")
HALF_DTYPES = "float16", "bfloat16"  # stored in 16 bits
MOST_LAYERS = 1_000  # several times the deepest model's: a typing error would fill the memory


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: each token's MLP is a weighted sum of a few of them."""

    count: int
    chosen: int  # per token
    renormalized: bool  # the weights of the chosen ones are scaled to sum to 1


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder, in this package's terms."""

    architecture: str
    family: Family
    hidden: int
    layers: int
    heads: int  # of queries
    kv_heads: int
    head_dim: int
    intermediate: int  # width of the MLP, or of one expert
    vocab: int
    context: int  # the most positions of a sequence
    layer_attention: tuple[LayerAttention, ...]  # by layer
    scales: Scales
    eps: float  # of every norm
    activation: Activation
    tied: bool  # the output head is the embedding matrix, or there is no such head
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    experts: Experts | None
    dtype: str  # of the stored weights: float32, bfloat16 or float16
    eos: tuple[int, ...]  # every token that ends an answer, ascending
    generates: bool = True  # whether it has a language head and is to generate
    labels: int = 0  # the number of scores per prompt; 0: it is no classifier or reranker
    # For a reranker that answers yes or no: the tokens whose logits give its score
    answers: tuple[int, ...] = ()

    @property
    def kv_elements(self) -> int:
        """KV numbers per token over all layers: a key and a value for each KV head."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def precision(self, requested: str, device: str) -> Precision:
        """The precision to compute in: float32 or bfloat16, on a CPU also with int8 weights.
        Raises SettingError for any other.

        requested: the user's choice; empty: as the weights are stored, but bfloat16 for float16,
        and float32 for both on a CPU without fast bfloat16. device: its kind in torch.
        """
        half = "bfloat16" if device != "cpu" or has_fast_bfloat16() else "float32"
        asked = read_precision(requested)
        name = asked.dtype or (half if self.dtype in HALF_DTYPES else self.dtype)
        if name not in ITEMSIZES:
            raise SettingError(f"dtype must be one of {', '.join(ITEMSIZES)}, not {name}")
        if asked.quantize and device != "cpu":
            raise SettingError(f"quantize {asked.quantize} is for a CPU, not for {device}")
        return Precision(name, asked.quantize)


def read_config(folder: Path) -> ModelConfig:
    """Read `config.json` and `generation_config.json` of a checkpoint's folder.

    Raises CheckpointError if config.json is missing or a value is invalid, UnsupportedModelError
    (which names the keys) if they ask for something this executor lacks.
    """
    return _with_modules(parse_config(*read_files(folder), str(folder / CONFIG)), folder)


def examine_folder(folder: Path) -> tuple[ModelConfig | None, tuple[str, ...]]:
    """As `examine`, for a checkpoint's folder."""
    config, refused = examine(*read_files(folder), str(folder / CONFIG))
    return config and _with_modules(config, folder), refused


def _with_modules(config: ModelConfig, folder: Path) -> ModelConfig:
    """Apply the checkpoint's modules: cap the context at its longest text, and turn a LogitScore
    model into a reranker that gives one score and generates nothing. Raises CheckpointError."""
    if most := longest_text(folder):
        config = replace(config, context=min(config.context, most))
    if not (answers := read_answer_tokens(folder)):
        return config
    if not config.generates or max(answers) >= config.vocab:
        why = f"{config.architecture} has no logits of the tokens {answers}"
        raise CheckpointError(f"{folder}: {why}, which are to be its score")
    return replace(config, generates=False, labels=1, answers=answers)


def parse_config(raw: Raw, generation: Raw, where: str = "config.json") -> ModelConfig:
    """Turn the two JSON objects into a ModelConfig. Raises as read_config does."""
    config, refused = examine(raw, generation, where)
    if config is None or refused:
        raise UnsupportedModelError(f"{where}: " + "; ".join(refused))
    return config


def examine(
    raw: Raw, generation: Raw, where: str = "config.json"
) -> tuple[ModelConfig | None, tuple[str, ...]]:
    """The model's configuration, and all reasons why it cannot be computed.

    The configuration is None if the family is unknown. If there are reasons, only its sizes are
    reliable. Raises CheckpointError for invalid values.
    """
    reader = ConfigReader(raw, where)
    architecture, family = _family(reader)
    if family is None:
        return None, tuple(reader.refused)
    _refuse_unsupported(reader, family)
    beside = ConfigReader(generation, str(Path(where).with_name(GENERATION)))
    config = _model_config(reader, architecture, family, beside)
    return config, tuple(dict.fromkeys(reader.refused))


def _model_config(
    reader: ConfigReader, architecture: str, family: Family, generation: ConfigReader
) -> ModelConfig:
    hidden, heads = reader.count("hidden_size"), reader.count("num_attention_heads")
    layers, vocab = reader.count("num_hidden_layers", most=MOST_LAYERS), reader.count("vocab_size")
    silent = heads if "num_key_value_heads" in reader.raw else family.kv_heads or heads
    kv_heads = reader.count("num_key_value_heads", silent)  # null: as many as heads
    head_dim = reader.count("head_dim", family.head_dim or hidden // heads)
    if heads % kv_heads:
        raise CheckpointError(
            f"{reader.where}: {heads} heads are not a multiple of {kv_heads} KV heads"
        )
    layer_attention, context = read_layer_attention(reader, family, layers)
    _check_rotary_dims(reader, layer_attention, head_dim)
    experts, wide = _experts(reader, family)
    ending = family_of(architecture)[1]
    everywhere = family.bias_key == "use_bias"  # StarCoder2: one key for all biases
    bias = reader.flag(family.bias_key, everywhere) and not family.qkv_bias
    return ModelConfig(
        architecture=architecture,
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=reader.count(wide),
        vocab=vocab,
        context=context,
        layer_attention=layer_attention,
        scales=read_scales(reader, family, hidden, head_dim),
        eps=reader.number(family.eps_key, family.eps),
        activation=_activation(reader, family),
        tied=ending != CAUSAL or reader.flag("tie_word_embeddings", family.tied),
        qkv_bias=family.qkv_bias or bias,
        out_bias=bias,
        mlp_bias=bias if everywhere else reader.flag("mlp_bias"),
        experts=experts,
        dtype=_dtype(reader),
        eos=_eos(reader, generation, vocab),
        generates=ending == CAUSAL,
        labels=len(read_labels(reader.raw, reader.where)) if ending == SCORES else 0,
    )


def _family(reader: ConfigReader) -> tuple[str, Family | None]:
    """The architecture's name and its family. Code in a checkpoint is never run.

    The first Phi-3 checkpoints carry the code that transformers adopted later, so ignoring that
    code changes nothing.
    """
    kind = reader.text("model_type")
    named = reader.array("architectures") or [
        name for name, family in FAMILIES.items() if family.model_type == kind
    ]
    architecture = str(named[0]) if named else f"model_type {kind or None!r}"
    family, _ = family_of(architecture)
    brought = str(reader.section("auto_map").get("AutoModelForCausalLM", ""))
    adopted = family is not None and "auto_map" in family.supports
    if "auto_map" in reader and not (adopted and brought.endswith("." + architecture)):
        reader.refuse("auto_map asks for code from the checkpoint; remote code is never run")
    if family is None:
        known = ", ".join(FAMILIES)
        reader.refuse(
            f"architecture {architecture} is not supported; those that are: {known}, and their "
            "models without a head or with a classifier's"
        )
    return architecture, family


def _refuse_unsupported(reader: ConfigReader, family: Family) -> None:
    for key, harmless in OPTIONAL_KEYS.items():
        if key in reader and key not in family.supports and reader.get(key) not in harmless:
            reader.refuse(f"{key} = {shortened(reader.get(key))} is not supported")
    if "num_experts" in family.supports and (
        reader.get("mlp_only_layers") or reader.get("decoder_sparse_step", 1) != 1
    ):
        reader.refuse(
            "mlp_only_layers and decoder_sparse_step are not supported: experts everywhere"
        )


def _check_rotary_dims(
    reader: ConfigReader, layer_attention: tuple[LayerAttention, ...], head_dim: int
) -> None:
    """Raise CheckpointError unless the rotated dimensions form pairs and LongRoPE's factors fit."""
    for rope in {layer.rope for layer in layer_attention if layer.rope is not None}:
        dims = int(head_dim * rope.rotary_share)
        if dims % 2 or not dims:
            why = f"rotary embedding needs an even head_dim, not {dims}"
            raise CheckpointError(f"{reader.where}: {why}")
        if isinstance(rope.scaling, LongRopeScaling) and len(rope.scaling.factors) != dims // 2:
            raise CheckpointError(
                f"{reader.where}: longrope has {len(rope.scaling.factors)} factors "
                f"for {dims // 2} pairs of dimensions"
            )


def _activation(reader: ConfigReader, family: Family) -> Activation:
    name = reader.get(family.activation_key, family.activation)
    if family.model_type == "gemma" and name == "gelu":
        return "gelu_pytorch_tanh"  # the first Gemma files say gelu but mean this
    if name not in ACTIVATIONS:
        reader.refuse(
            f"{family.activation_key} = {name!r} is not supported, only {', '.join(ACTIVATIONS)}"
        )
        return "silu"
    return cast(Activation, name)


def _experts(reader: ConfigReader, family: Family) -> tuple[Experts | None, str]:
    """The experts, if any, and config.json's key for the MLP's width."""
    if "num_local_experts" not in family.supports:
        return None, "intermediate_size"
    key = "num_experts" if "num_experts" in reader else "num_local_experts"
    count, chosen = reader.count(key), reader.count("num_experts_per_tok", family.chosen_experts)
    if chosen > count:
        raise reader.error("num_experts_per_tok", f"is more than the {count} experts", chosen)
    if family.model_type == "mixtral":
        return Experts(count, chosen, renormalized=True), "intermediate_size"
    return Experts(count, chosen, reader.flag("norm_topk_prob")), "moe_intermediate_size"


def _dtype(reader: ConfigReader) -> str:
    name = str(reader.get("dtype", reader.get("torch_dtype", "float32"))).removeprefix("torch.")
    if name not in ("float32", "bfloat16", "float16"):
        reader.refuse(f"dtype {name} is not supported")
    return name


def _eos(reader: ConfigReader, generation: ConfigReader, vocab: int) -> tuple[int, ...]:
    """The ids from both files: instruct checkpoints name <|eot_id|> and the like only in the
    second. An id outside the vocabulary, which the model cannot generate, is ignored."""
    found = set[int]()
    for each in (reader, generation):
        value = each.get("eos_token_id", [])
        for token in value if isinstance(value, list) else [value]:
            if isinstance(token, bool) or not isinstance(token, int):
                raise each.error("eos_token_id", "is not a token id", token)
            found.add(token)
    return tuple(sorted(token for token in found if 0 <= token < vocab))
