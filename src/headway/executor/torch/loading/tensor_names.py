"""The names and shapes of a checkpoint's tensors, for each part of the decoder."""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.executor.torch.config.model_config import ModelConfig

EMBED, HEAD, NORM = "model.embed_tokens", "lm_head", "model.norm"
SCORE = "score"  # the head of a classifier

Shapes = dict[str, tuple[int, ...]]  # by tensor
NORM_NAMES = {
    "pre": ("input_layernorm", "", "post_attention_layernorm", ""),
    "post": ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
    "both": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A linear layer's weight [outputs, inputs], and its bias [outputs] if it has one."""

    name: str
    outputs: int
    inputs: int
    biased: bool = False

    def shapes(self) -> Shapes:
        """Each tensor's shape by name: (outputs, inputs) of the weight, (outputs,) of a bias."""
        bias = {self.name + ".bias": (self.outputs,)} if self.biased else {}
        return {self.name + ".weight": (self.outputs, self.inputs), **bias}


@dataclass(frozen=True, slots=True)
class MlpTensors:
    """The matrices of an MLP: those into it, to be stacked by output, and the one out of it."""

    up: tuple[Matrix, ...]  # gate and up, or one matrix with both, or only up
    down: Matrix


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """The tensors of one decoder layer."""

    norms: tuple[str, str, str, str]  # before and after attention, before and after the MLP
    qkv: tuple[Matrix, ...]  # to be stacked by output
    qk_norms: tuple[tuple[str, int], ...]  # name and size: of queries, of keys; or empty
    out: Matrix
    mlps: tuple[MlpTensors, ...]  # one, or one per expert
    router: tuple[Matrix, ...]  # one if there are experts, else none


def tensor_shapes(config: ModelConfig) -> Shapes:
    """The name and shape of every tensor that a checkpoint of this config must have."""
    found: Shapes = {f"{EMBED}.weight": (config.vocab, config.hidden)}
    for i in range(config.layers):
        layer = layer_tensors(config, i)
        for matrix in _matrices(layer):
            found |= matrix.shapes()
        for name, size in layer.qk_norms:
            found[name + ".weight"] = (size,)
        for name in filter(None, layer.norms):
            found |= _norm_shapes(config, name)
    found |= _norm_shapes(config, NORM)
    if not config.tied:
        found[HEAD + ".weight"] = (config.vocab, config.hidden)
    if config.labels and not config.answers:
        found[SCORE + ".weight"] = (config.labels, config.hidden)
    return found


def attention_inputs(config: ModelConfig) -> frozenset[str]:
    """The tensors that make queries, keys and values of a layer's input."""
    found = set[str]()
    for i in range(config.layers):
        layer = layer_tensors(config, i)
        for matrix in layer.qkv:
            found |= matrix.shapes().keys()
        found |= {name + ".weight" for name, _ in layer.qk_norms}
        if before := layer.norms[0]:
            found |= _norm_shapes(config, before).keys()
    return frozenset(found)


def layer_tensors(config: ModelConfig, i: int) -> LayerTensors:
    """The tensors of layer i."""
    family, at = config.family, f"model.layers.{i}."
    attention = at + "self_attn."
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    qkv = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    if family.fused:
        qkv = {"qkv_proj": queries + 2 * keys}
    qk_sizes = {"": (), "head": (config.head_dim,) * 2, "whole": (queries, keys)}[family.qk_norm]
    before, after, then, last = (name and at + name for name in NORM_NAMES[family.norms])
    return LayerTensors(
        norms=(before, after, then, last),
        qkv=tuple(
            Matrix(attention + name, size, config.hidden, config.qkv_bias)
            for name, size in qkv.items()
        ),
        qk_norms=tuple(zip((attention + "q_norm", attention + "k_norm"), qk_sizes, strict=False)),
        out=Matrix(attention + "o_proj", config.hidden, queries, config.out_bias),
        mlps=_mlps(config, at),
        router=_router(config, at),
    )


def _mlps(config: ModelConfig, at: str) -> tuple[MlpTensors, ...]:
    if config.experts is None:
        names = {True: ("gate_proj", "up_proj", "down_proj"), False: ("c_fc", "c_proj")}
        return (_mlp(config, at + "mlp.", *names[config.family.gated]),)
    names_of = ("w1", "w3", "w2") if _is_mixtral(config) else ("gate_proj", "up_proj", "down_proj")
    return tuple(
        _mlp(config, f"{_mlp_prefix(config, at)}experts.{e}.", *names_of)
        for e in range(config.experts.count)
    )


def _mlp(config: ModelConfig, at: str, *names: str) -> MlpTensors:
    hidden, wide, bias = config.hidden, config.intermediate, config.mlp_bias
    up = tuple(Matrix(at + name, wide, hidden, bias) for name in names[:-1])
    if config.family.fused:
        up = (Matrix(at + "gate_up_proj", 2 * wide, hidden, bias),)
    return MlpTensors(up, Matrix(at + names[-1], hidden, wide, bias))


def _router(config: ModelConfig, at: str) -> tuple[Matrix, ...]:
    if config.experts is None:
        return ()
    return (Matrix(_mlp_prefix(config, at) + "gate", config.experts.count, config.hidden),)


def _is_mixtral(config: ModelConfig) -> bool:
    return config.family.model_type == "mixtral"


def _mlp_prefix(config: ModelConfig, at: str) -> str:
    return at + ("block_sparse_moe." if _is_mixtral(config) else "mlp.")


def _norm_shapes(config: ModelConfig, name: str) -> Shapes:
    names = ("weight", "bias") if config.family.norm == "layer" else ("weight",)
    return {f"{name}.{each}": (config.hidden,) for each in names}


def _matrices(layer: LayerTensors) -> Iterator[Matrix]:
    yield from layer.qkv
    yield layer.out
    yield from layer.router
    for mlp in layer.mlps:
        yield from mlp.up
        yield mlp.down
