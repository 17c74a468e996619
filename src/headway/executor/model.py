"""One decoder for all supported families: Llama, Mistral, Qwen2, Qwen3.

A flat, ragged batch: N tokens of any rows, one after the other, [N, hidden]. Only attention
knows where one row ends and the next begins.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor import attention
from headway.executor.cache import KVCache
from headway.executor.config import ModelConfig
from headway.executor.inputs import Inputs
from headway.executor.rope import rotate, tables
from headway.executor.weights import Layer, Weights


class Decoder:
    """The pre-norm transformer with rotary positions, grouped queries and a gated MLP."""

    def __init__(self, config: ModelConfig, weights: Weights, context: int = 0) -> None:
        """context: positions that will be asked for; 0: all that the model was made for."""
        self.config, self.weights = config, weights
        self.dtype, self.device = weights.embed.dtype, weights.embed.device
        self.cos, self.sin = tables(
            config.rope, config.head_dim, context or config.context, self.dtype, self.device
        )

    def forward(self, inputs: Inputs, cache: KVCache) -> Tensor:
        """Compute N tokens and keep their keys and values: [N, hidden], before the last norm."""
        x = F.embedding(inputs.tokens, self.weights.embed)
        cos, sin = self.cos[inputs.positions], self.sin[inputs.positions]
        eps = self.config.eps
        for i, layer in enumerate(self.weights.layers):
            q, k, v = self._project(layer, rms_norm(x, layer.attention_norm, eps), cos, sin)
            cache.write(i, inputs.cells, k, v)
            x = x + layer.out(_attend(q, cache, i, inputs))
            gate, up = layer.gate_up(rms_norm(x, layer.mlp_norm, eps)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Of those tokens that are given: [R, hidden] -> [R, vocab], float32."""
        return self.weights.head(rms_norm(x, self.weights.norm, self.config.eps)).float()

    def _project(
        self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[N, hidden] -> q [N, heads, head_dim], k and v [N, kv_heads, head_dim]."""
        heads, kv_heads, eps = self.config.heads, self.config.kv_heads, self.config.eps
        qkv = layer.qkv(x).view(len(x), heads + 2 * kv_heads, self.config.head_dim)
        # A row that has lost its numbers (NaN) must not leave them where others gather: its own
        # residual stream keeps them, and that is where it is found out.
        torch.nan_to_num_(qkv[:, heads:], 0.0, 0.0, 0.0)
        turned, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        if layer.q_norm is not None and layer.k_norm is not None:
            q = rms_norm(turned[:, :heads], layer.q_norm, eps)
            turned = torch.cat((q, rms_norm(turned[:, heads:], layer.k_norm, eps)), dim=1)
        turned = rotate(turned, cos, sin)
        return turned[:, :heads], turned[:, heads:], v


def _attend(q: Tensor, cache: KVCache, layer: int, inputs: Inputs) -> Tensor:
    """[N, heads, head_dim] -> [N, heads x head_dim], each query over its own row's past."""
    found = []
    for rows in inputs.decodes:
        k, v = cache.gather(layer, rows.blocks)
        shape = (rows.end - rows.begin, -1, cache.heads, cache.head_dim)
        mine = q[rows.begin : rows.end]
        found.append(attention.decode(mine, k.view(shape), v.view(shape), rows.mask))
    for row in inputs.prefills:
        k, v = cache.gather(layer, row.blocks)
        mine = q[row.begin : row.end]
        found.append(attention.prefill(mine, k[: row.keys], v[: row.keys], row.mask))
    return found[0] if len(found) == 1 else torch.cat(found)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale the last dimension to a root mean square of 1, in float32; then by the weight.

    Rounded to the dtype before the weight is applied, as Llama's reference does.
    """
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)
