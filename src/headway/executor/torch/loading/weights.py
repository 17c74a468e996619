"""Weights: the decoder's weights, from a checkpoint or random in the same shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headway.errors import CheckpointError
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.cpu.int8 import PlainInt8
from headway.executor.torch.fused.choose import gating_of, grouped_experts
from headway.executor.torch.layers.embedding import Embedding, PackedRows, SharedEmbedding
from headway.executor.torch.layers.linear import AnyLinear, HalfLinear, Linear, linear
from headway.executor.torch.layers.mlp import Gating, Mixture, Mlp
from headway.executor.torch.layers.norm import LayerNorm, Norm, RmsNorm
from headway.executor.torch.layers.operators import NO_NORM
from headway.executor.torch.layers.quantized import QuantizedLinear
from headway.executor.torch.loading.checkpoint import Checkpoint
from headway.executor.torch.loading.tensor_names import (
    EMBED,
    HEAD,
    NORM,
    SCORE,
    Matrix,
    MlpTensors,
    attention_inputs,
    layer_tensors,
    tensor_shapes,
)

Read = Callable[[str], Tensor]  # a tensor by its name in the checkpoint


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. Matrices with the same input are stacked by output, so x is read once.

    qkv      | heads x head_dim | kv_heads x head_dim | kv_heads x head_dim |
    """

    before_attention: Norm
    qkv: AnyLinear
    q_norm: Norm  # over each head, or over all heads as one
    k_norm: Norm
    out: AnyLinear
    after_attention: Norm
    before_mlp: Norm
    mlp: Mlp | Mixture
    after_mlp: Norm


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights, on one device. They are in one dtype, except for matrices kept in 8 bits or in
    bfloat16, and norms that multiply in float32."""

    embed: Embedding | SharedEmbedding  # [vocab, hidden]
    layers: tuple[Layer, ...]
    norm: Norm
    head: AnyLinear  # hidden -> vocab; if the model has no such head, the embedding's weight
    score: AnyLinear | None  # hidden -> a classifier's labels, or a reranker's answer logits
    nbytes: int

    def parts(self) -> list[tuple[int, int]]:
        """Address and bytes of each matrix that every step reads. Experts are left out."""
        mlps = [layer.mlp for layer in self.layers if isinstance(layer.mlp, Mlp)]
        return [
            self.head.part,
            *(each.part for layer in self.layers for each in (layer.qkv, layer.out)),
            *(each.part for mlp in mlps for each in (mlp.gate_up, mlp.down)),
        ]


def load_weights(
    folder: Path,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    quantized: bool = False,
) -> Weights:
    """Read the weights of a checkpoint's folder. quantized: keep matrices in 8 bits (on a CPU),
    made from the stored numbers. Raises CheckpointError, naming the file and the tensor.

    What makes queries, keys and values must be finite. Attention hides NaN in them, so the answers
    would be wrong without an error. NaN elsewhere is found in each step.
    """
    attended = attention_inputs(config)
    with Checkpoint(folder, tensor_shapes(config)) as checkpoint:
        used = config.generates or bool(config.answers)
        if used and config.tied and HEAD + ".weight" in checkpoint:
            embed, head = checkpoint.read(EMBED + ".weight"), checkpoint.read(HEAD + ".weight")
            if embed.shape != head.shape or not torch.equal(embed, head):
                raise CheckpointError(
                    f"{folder}: tie_word_embeddings is set, yet {HEAD}.weight differs from "
                    f"{EMBED}.weight"
                )

        def read(name: str) -> Tensor:
            found = checkpoint.read_finite if name in attended else checkpoint.read
            return found(name).to(device)

        return assemble(config, read, dtype, quantized)


def random_weights(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    quantized: bool = False,
    seed: int = 0,
) -> Weights:
    """Random weights in a config's shapes, for benchmarks, where only the shapes matter.

    Normal with deviation 0.02, biases 0.01, norms 1, so that activations neither grow nor vanish.
    """
    # Drawn on the device itself: on a GPU even the billions of a large model take no time.
    stored = torch.bfloat16 if config.dtype == "bfloat16" else dtype
    stream, of = torch.Generator(device).manual_seed(seed), tensor_shapes(config)

    def read(name: str) -> Tensor:
        if name.endswith("norm.weight"):
            tensor = torch.ones(of[name], device=device)
        else:
            tensor = torch.randn(of[name], generator=stream, device=device)
            tensor *= 0.01 if "bias" in name else 0.02
        return tensor.to(stored)

    return assemble(config, read, dtype, quantized)


def assemble(
    config: ModelConfig, read: Read, dtype: torch.dtype, quantized: bool = False
) -> Weights:
    """Build the decoder's weights from the tensors that `read` returns, stacking matrices."""
    parts = _Parts(config, read, dtype, quantized)
    embed, head = parts.ends()
    norm = parts.norm(NORM)
    layers = tuple(_layer(config, parts, i, embed.device) for i in range(config.layers))
    return Weights(embed, layers, norm, head, parts.score(), parts.nbytes)


def _layer(config: ModelConfig, parts: "_Parts", i: int, device: torch.device) -> Layer:
    at = layer_tensors(config, i)
    before_attention, after_attention, before_mlp, after_mlp = map(parts.norm, at.norms)
    q_norm, k_norm = [parts.norm(name) for name, _ in at.qk_norms] or [NO_NORM, NO_NORM]
    gating = gating_of(device)
    mlps = tuple(parts.mlp(each, gating) for each in at.mlps)
    mlp: Mlp | Mixture = mlps[0]
    if config.experts is not None:
        router = parts.linear(*at.router, quantized=False)  # small, but its choices matter
        waits, chosen = device.type == "cpu", config.experts.chosen
        grouped = grouped_experts(mlps, device)
        mlp = Mixture(router, mlps, chosen, config.experts.renormalized, waits, grouped)
    return Layer(
        before_attention=before_attention,
        qkv=parts.linear(*at.qkv),
        q_norm=q_norm,
        k_norm=k_norm,
        out=parts.linear(at.out),
        after_attention=after_attention,
        before_mlp=before_mlp,
        mlp=mlp,
        after_mlp=after_mlp,
    )


class _Parts:
    """Builds the parts of a decoder from the tensors that `read` returns, and counts bytes."""

    def __init__(
        self, config: ModelConfig, read: Read, dtype: torch.dtype, quantized: bool
    ) -> None:
        self.config, self._read, self.nbytes = config, read, 0
        self.dtype, self.quantized = dtype, quantized

    def read(self, name: str) -> Tensor:
        tensor = self._read(name).to(self.dtype)
        self.nbytes += tensor.nbytes
        return tensor

    def ends(self) -> tuple[Embedding | SharedEmbedding, AnyLinear]:
        """The embedding and the head."""
        embed, head = EMBED + ".weight", HEAD + ".weight"
        tied = self.config.tied or bool(self.config.answers)  # answers: only a few head rows needed
        weight = self._read(embed)
        if self.quantized:
            last = QuantizedLinear([weight if tied else self._read(head)])
            rows = last.matrix if tied else PlainInt8(weight)
            self.nbytes += last.nbytes + (0 if tied else rows.nbytes)
            return SharedEmbedding(rows, self.dtype), last
        plain = linear([weight if tied else self._read(head)], None, self.dtype)
        if not self.config.generates and isinstance(plain, Linear) and not plain.panels:
            plain = Linear(weight.to(self.dtype), packing=False)  # an unused head needs no copy
        self.nbytes += plain.nbytes
        if tied and isinstance(plain, HalfLinear):
            return SharedEmbedding(plain.matrix, self.dtype), plain
        if tied and isinstance(plain, Linear) and plain.panels:
            return SharedEmbedding(PackedRows(plain, weight.shape[1]), self.dtype), plain
        table = weight.to(self.dtype)
        # In another packed layout a tied head is a second copy: the embedding needs plain rows.
        self.nbytes += 0 if tied and plain.weight is not None else table.nbytes
        return Embedding(table), plain

    def score(self) -> AnyLinear | None:
        """The head of a classifier, or the head's rows for the tokens of a reranker's answers."""
        config = self.config
        if config.answers:
            rows = self._read((EMBED if config.tied else HEAD) + ".weight")[list(config.answers)]
            head = linear([rows], None, self.dtype)
            self.nbytes += head.nbytes
            return head
        score = Matrix(SCORE, config.labels, config.hidden)
        return self.linear(score, quantized=False) if config.labels else None

    def norm(self, name: str) -> Norm:
        """The norm of this name; an empty name gives no norm."""
        kind, eps = self.config.family.norm, self.config.eps
        if not name:
            return NO_NORM
        weight = self.read(name + ".weight")
        match kind:
            case "rms":
                return RmsNorm(weight, eps)
            case "wide":
                return RmsNorm(weight.float(), eps)
            case "offset":
                return RmsNorm(1.0 + weight.float(), eps)
            case "layer":
                return LayerNorm(weight, self.read(name + ".bias"), eps)

    def linear(self, *stacked: Matrix, quantized: bool = True) -> AnyLinear:
        """Stack matrices with the same inputs into one linear layer. quantized: whether this layer
        may be in 8 bits, if matrices are."""
        bias = None
        if stacked[0].biased:
            bias = torch.cat([self._read(each.name + ".bias") for each in stacked]).to(self.dtype)
        weights = [self._read(each.name + ".weight") for each in stacked]
        layer: AnyLinear
        if self.quantized and quantized:
            layer = QuantizedLinear(weights, bias)
        else:
            layer = linear(weights, bias, self.dtype)
        self.nbytes += layer.nbytes
        return layer

    def mlp(self, at: MlpTensors, gating: Gating | None) -> Mlp:
        up, down = self.linear(*at.up), self.linear(at.down)
        return Mlp(up, down, self.config.family.gated, self.config.activation, gating)
