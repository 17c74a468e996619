"""Decoder: one forward pass for all supported families; families.py says how they differ.

The batch is flat and ragged: N tokens of all rows, one after the other, [N, hidden]. Only
attention knows where one row ends and the next begins.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.core.cost.step_cost import Rounding
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.inputs import Inputs
from headway.executor.torch.layers.rope import rotary_tables, rotate
from headway.executor.torch.loading.weights import Layer, Weights
from headway.executor.torch.memory.kv_cache import KVCache

RotaryTable = tuple[Tensor, Tensor]  # cosines and sines
CACHED = 64 << 20  # bytes of weights of which a processor keeps much from one step to the next
# Of rows, on a CPU. oneDNN prepares and keeps half a megabyte for each number of them and shape of
# weights: five digits are 32 numbers, and then 16 each time that they double. At 1 to 3 rows it is
# slow where packed weights come from memory: computing 4 instead takes 0.90 of a decode step of one
# row, 0.79 of two (bfloat16, the shapes of Qwen2.5-0.5B, one thread of a Zen 4; two: 0.95, 0.92).
SMALL, LARGE = Rounding(digits=5), Rounding(least=4, digits=5)


class Decoder:
    """A transformer with rotary positions and grouped queries; norms where the family has them.

    x  ->  x + residual * after(attention(before(x)))  ->  x + residual * after(mlp(before(x)))
    """

    def __init__(self, config: ModelConfig, weights: Weights, context: int = 0) -> None:
        """context: the most positions of a sequence; 0: as many as the model was made for."""
        self.config, self.weights = config, weights
        self.dtype, self.device = weights.embed.dtype, weights.embed.device
        # No padding with experts: padding rows would choose some, which would then be read.
        few = weights.nbytes < CACHED or config.experts is not None
        rounding = SMALL if few or weights.head.packed is None else LARGE
        self.rounding = rounding if self.device.type == "cpu" else Rounding()
        length = context or config.context
        ropes = list(dict.fromkeys(layer.rope for layer in config.layer_attention if layer.rope))
        self.rotary: list[RotaryTable] = [
            rotary_tables(rope, config.head_dim, length, self.dtype, self.device) for rope in ropes
        ]
        # For each layer, the index of its table; -1: no position embedding.
        self.table_of_layer = [
            ropes.index(each.rope) if each.rope else -1 for each in config.layer_attention
        ]
        # Rounded to the dtype before it multiplies, as Gemma's reference does.
        self.embedding_scale = torch.tensor(config.scales.embedding, device=self.device).to(
            self.dtype
        )

    def forward(self, inputs: Inputs, cache: KVCache) -> Tensor:
        """Compute N tokens and write their keys and values to the cache.

        Returns [N, hidden], before the last norm. On a CPU, x has a few spare rows behind the N:
        only operations that treat each row by itself see them.
        """
        count = len(inputs.tokens)
        spare = self._spare_rows(count)
        x = F.embedding(F.pad(inputs.tokens, (0, spare)), self.weights.embed)
        if self.config.scales.embedding != 1:
            x = x * self.embedding_scale
        at = inputs.positions
        rotations: list[RotaryTable | None] = [
            *((cos[at], sin[at]) for cos, sin in self.rotary),
            None,
        ]
        for i, layer in enumerate(self.weights.layers):
            qkv = layer.qkv(layer.before_attention(x))[:count]
            q, k, v = self._heads_rotated(layer, qkv, rotations[self.table_of_layer[i]])
            cache.write(i, inputs.cells, k, v)
            found = inputs.attention.attend(i, q)
            found = layer.out(F.pad(found, (0, 0, 0, spare)) if spare else found)
            x = self._add_residual(x, layer.after_attention(found))
            found = layer.mlp(layer.before_mlp(x))
            x = self._add_residual(x, layer.after_mlp(found))
        return x[:count]

    def logits(self, x: Tensor) -> Tensor:
        """Logits of R tokens: [R, hidden] -> [R, vocab], float32."""
        scales, count = self.config.scales, len(x)
        x = F.pad(x, (0, 0, 0, self._spare_rows(count)))
        logits = self.weights.head(self.weights.norm(x))[:count].float()
        if scales.logits != 1:
            logits = logits * scales.logits
        if scales.logits_cap:
            logits = (logits / scales.logits_cap).tanh() * scales.logits_cap
        return logits

    def prepare(self, rows: int, sampled: bool) -> None:
        """Run each matrix product once with so many rows: on a CPU, oneDNN prepares it and keeps
        that. All layers have the shapes of the first. sampled: the logits' product too."""
        first, config = self.weights.layers[0], self.config
        x = self.weights.embed.new_zeros(rows, config.hidden)
        first.qkv(first.before_attention(x))
        first.out(x.new_zeros(rows, config.heads * config.head_dim))
        first.mlp(first.before_mlp(x))
        if sampled:
            self.logits(x)

    def _spare_rows(self, rows: int) -> int:
        return self.rounding.of(rows) - rows

    def _add_residual(self, x: Tensor, found: Tensor) -> Tensor:
        """x plus what attention or the MLP adds, scaled."""
        scale = self.config.scales.residual
        return x + found if scale == 1 else torch.add(x, found, alpha=scale)

    def _heads_rotated(
        self, layer: Layer, qkv: Tensor, rotary_table: RotaryTable | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[N, all heads] -> q [N, heads, head_dim], k and v [N, kv_heads, head_dim]."""
        heads, kv_heads = self.config.heads, self.config.kv_heads
        qkv = qkv.view(len(qkv), heads + 2 * kv_heads, self.config.head_dim)
        # NaN must not reach the cache, where other rows gather. The row's own residual stream keeps
        # it, and that is where it is detected.
        torch.nan_to_num_(qkv[:, heads:], 0.0, 0.0, 0.0)
        turned, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        match self.config.family.qk_norm:
            case "head":
                q, k = layer.q_norm(turned[:, :heads]), layer.k_norm(turned[:, heads:])
                turned = torch.cat((q, k), dim=1)
            case "whole":
                q, k = turned[:, :heads].flatten(1), turned[:, heads:].flatten(1)
                whole = torch.cat((layer.q_norm(q), layer.k_norm(k)), dim=1)
                turned = whole.view(turned.shape)
        if rotary_table is not None:
            turned = rotate(turned, *rotary_table)
        return turned[:, :heads], turned[:, heads:], v


def row_counts(most: int, rounding: Rounding) -> list[int]:
    """That steps of up to so many rows are rounded to, ascending."""
    return sorted({rounding.of(rows) for rows in range(1, most + 1)})
