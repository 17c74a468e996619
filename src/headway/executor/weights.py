"""The decoder's weights: from a checkpoint, or random ones in the same shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headway.errors import CheckpointError
from headway.executor.checkpoint import Checkpoint
from headway.executor.config import ModelConfig
from headway.executor.linear import Linear

Read = Callable[[str], Tensor]  # a tensor by its name in the checkpoint

EMBED, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. Fused matrices are stacked by output, so one product reads x once.

    qkv      | heads x head_dim | kv_heads x head_dim | kv_heads x head_dim |
    gate_up  | intermediate     | intermediate |
    """

    attention_norm: Tensor  # [hidden]
    qkv: Linear
    q_norm: Tensor | None  # [head_dim], Qwen3 only
    k_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor  # [hidden]
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All of them, in one dtype on one device."""

    embed: Tensor  # [vocab, hidden]
    layers: tuple[Layer, ...]
    norm: Tensor  # [hidden]
    head: Linear  # hidden -> vocab
    nbytes: int


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint of this config must have."""
    hidden, wide = config.hidden, config.intermediate
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found: dict[str, tuple[int, ...]] = {EMBED: (config.vocab, hidden)}
    for i in range(config.layers):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        found[f"model.layers.{i}.input_layernorm.weight"] = (hidden,)
        for name, size in (("q", queries), ("k", keys), ("v", keys)):
            found[f"{at}{name}_proj.weight"] = (size, hidden)
            if config.qkv_bias:
                found[f"{at}{name}_proj.bias"] = (size,)
        found[at + "o_proj.weight"] = (hidden, queries)
        if config.out_bias:
            found[at + "o_proj.bias"] = (hidden,)
        if config.qk_norm:
            found[at + "q_norm.weight"] = found[at + "k_norm.weight"] = (config.head_dim,)
        found[f"model.layers.{i}.post_attention_layernorm.weight"] = (hidden,)
        found[mlp + "gate_proj.weight"] = found[mlp + "up_proj.weight"] = (wide, hidden)
        found[mlp + "down_proj.weight"] = (hidden, wide)
    found[NORM] = (hidden,)
    if not config.tied:
        found[HEAD] = (config.vocab, hidden)
    return found


def load_weights(
    folder: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> Weights:
    """Read a checkpoint's folder. Raises CheckpointError, naming the file and the tensor."""
    with Checkpoint(folder, shapes(config)) as checkpoint:
        if config.tied and HEAD in checkpoint:
            embed, head = checkpoint.read(EMBED), checkpoint.read(HEAD)
            if embed.shape != head.shape or not torch.equal(embed, head):
                raise CheckpointError(
                    f"{folder}: tie_word_embeddings is set, yet {HEAD} differs from {EMBED}"
                )
        return assemble(config, lambda name: checkpoint.read(name).to(device, dtype))


def random_weights(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Weights:
    """Random weights in a config's real shapes: for benchmarks, where only the shapes matter.

    Normal with deviation 0.02, norms 1, biases 0.01: activations stay of a sane size.
    """
    stream, of = torch.Generator().manual_seed(seed), shapes(config)

    def read(name: str) -> Tensor:
        if name.endswith("norm.weight"):
            made = torch.ones(of[name])
        else:
            made = torch.randn(of[name], generator=stream) * (0.01 if "bias" in name else 0.02)
        return made.to(device, dtype)

    return assemble(config, read)


def assemble(config: ModelConfig, read: Read) -> Weights:
    """Build the decoder's weights of the tensors that `read` gives, fusing as it goes."""
    embed, norm = read(EMBED), read(NORM)
    layers = tuple(_layer(config, read, f"model.layers.{i}.") for i in range(config.layers))
    # Packed, even a tied head is a second copy: the embedding is looked up row by row.
    head = Linear(embed if config.tied else read(HEAD))
    shared = config.tied and head.weight is not None
    total = embed.nbytes + norm.nbytes + (0 if shared else head.nbytes)
    return Weights(embed, layers, norm, head, total + sum(map(_nbytes, layers)))


def _layer(config: ModelConfig, read: Read, at: str) -> Layer:
    qkv = [f"{at}self_attn.{name}_proj." for name in "qkv"]
    out = at + "self_attn.o_proj."
    return Layer(
        attention_norm=read(at + "input_layernorm.weight"),
        qkv=Linear(
            torch.cat([read(name + "weight") for name in qkv]),
            torch.cat([read(name + "bias") for name in qkv]) if config.qkv_bias else None,
        ),
        q_norm=read(at + "self_attn.q_norm.weight") if config.qk_norm else None,
        k_norm=read(at + "self_attn.k_norm.weight") if config.qk_norm else None,
        out=Linear(read(out + "weight"), read(out + "bias") if config.out_bias else None),
        mlp_norm=read(at + "post_attention_layernorm.weight"),
        gate_up=Linear(
            torch.cat([read(at + "mlp.gate_proj.weight"), read(at + "mlp.up_proj.weight")])
        ),
        down=Linear(read(at + "mlp.down_proj.weight")),
    )


def _nbytes(layer: Layer) -> int:
    products = (layer.qkv, layer.out, layer.gate_up, layer.down)
    return sum(each.nbytes for each in products) + layer.attention_norm.nbytes * 2
