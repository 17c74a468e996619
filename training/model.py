"""A Llama decoder in about a hundred lines, written to be trained on a CPU.

It computes what transformers' ``LlamaForCausalLM`` computes (pre-norm, RMSNorm, rotary positions in
the half-split layout, grouped-query attention, SwiGLU, tied embeddings), so exporting the weights
only renames them. Two matrices are fused, for speed on two cores:

    q, k, v are one matrix   [ q: heads*dim | k: kv*dim | v: kv*dim ]   rows
    gate, up are one matrix  [ gate: inter | up: inter ]                rows

``export_state`` splits them again, under the names that transformers expects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The sizes of the network. The fields have the names and meanings of LlamaConfig's."""

    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 32
    intermediate_size: int = 704
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 2048


SHAPES = {
    "tiny": Shape(),
    # A draft model: a fifth of the work per token, most of it in the output matrix.
    "draft": Shape(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=288,
    ),
}


class Norm(nn.Module):
    """RMSNorm over the last dimension, computed in float32 whatever the input's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalized ``x``, in its own shape and dtype."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (i, i + dim/2) of ``x`` [batch, heads, time, dim] by its angle."""
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(x.dtype)


class Layer(nn.Module):
    """One decoder layer: attention, then SwiGLU, each after a norm and added to the residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        s = shape
        self.heads, self.kv_heads, self.dim = (
            s.num_attention_heads,
            s.num_key_value_heads,
            s.head_dim,
        )
        self.attn_norm = Norm(s.hidden_size, s.rms_norm_eps)
        self.qkv = nn.Linear(s.hidden_size, (self.heads + 2 * self.kv_heads) * self.dim, bias=False)
        self.out = nn.Linear(self.heads * self.dim, s.hidden_size, bias=False)
        self.mlp_norm = Norm(s.hidden_size, s.rms_norm_eps)
        self.gate_up = nn.Linear(s.hidden_size, 2 * s.intermediate_size, bias=False)
        self.down = nn.Linear(s.intermediate_size, s.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The residual stream [batch, time, hidden] after this layer."""
        batch, time, _ = x.shape
        qkv = self.qkv(self.attn_norm(x)).view(batch, time, -1, self.dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, -1))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """The whole network: token ids [batch, time] to logits [batch, time, vocab]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)
        # The angles of all positions are computed once. A row is one position.
        rate = shape.rope_theta ** -(torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angle = torch.outer(torch.arange(shape.max_position_embeddings).float(), rate)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # As in GPT-2, layers that write into the residual stream start smaller.
                into_stream = name.endswith(("out.weight", "down.weight"))
                depth = math.sqrt(2 * shape.num_hidden_layers) if into_stream else 1.0
                nn.init.normal_(weight, std=0.02 / depth)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [batch, time, vocab] of the token ids [batch, time]."""
        time = ids.shape[1]
        cos, sin = self.cos[:time], self.sin[:time]
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed.weight)

    def loss(self, ids: Tensor) -> Tensor:
        """Mean cross-entropy, in nats per token, of ``ids[:, 1:]`` given the tokens before each."""
        logits = self(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def export_state(model: Decoder, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    """The weights under transformers' names. The tied output matrix is stored once."""
    s = model.shape
    q, kv = s.num_attention_heads * s.head_dim, s.num_key_value_heads * s.head_dim
    state = {
        "model.embed_tokens.weight": model.embed.weight,
        "model.norm.weight": model.norm.weight,
    }
    for i, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        to = f"model.layers.{i}."
        parts = layer.qkv.weight.split((q, kv, kv))
        for name, part in zip("qkv", parts, strict=True):
            state[f"{to}self_attn.{name}_proj.weight"] = part
        state[f"{to}self_attn.o_proj.weight"] = layer.out.weight
        gate, up = layer.gate_up.weight.chunk(2)
        state[f"{to}mlp.gate_proj.weight"] = gate
        state[f"{to}mlp.up_proj.weight"] = up
        state[f"{to}mlp.down_proj.weight"] = layer.down.weight
        state[f"{to}input_layernorm.weight"] = layer.attn_norm.weight
        state[f"{to}post_attention_layernorm.weight"] = layer.mlp_norm.weight
    return {name: w.detach().to(dtype).contiguous().clone() for name, w in state.items()}
