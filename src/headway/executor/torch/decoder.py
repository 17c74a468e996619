"""Decoder: one forward pass for all supported families; families.py says how they differ.

The batch is flat and ragged: the N tokens of all rows end to end, [N, hidden]. Only attention
knows where one row ends and the next begins.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.core.cost.step_cost import Rounding
from headway.executor.torch.attention.attention import StepAttention
from headway.executor.torch.config.model_config import ModelConfig
from headway.executor.torch.cpu.library import kernels
from headway.executor.torch.fused.choose import operators_of, recorded_steps
from headway.executor.torch.inputs import Inputs
from headway.executor.torch.layers.operators import NO_NORM, RotaryTable, StepHeads
from headway.executor.torch.layers.rope import rotary_tables
from headway.executor.torch.loading.weights import Weights
from headway.executor.torch.memory.kv_cache import KVCache

CACHED = 64 << 20  # bytes: much of a smaller model's weights stays in the CPU's caches across steps
# Rounding of row counts on a CPU. oneDNN prepares and keeps half a megabyte for each row count and
# weight shape: five digits allow 32 counts, then 16 more per doubling. oneDNN is slow at 1 to 3
# rows if packed weights come from memory: with 4 rows instead, a decode step of one row takes 0.90
# of the time, of two rows 0.79 (bfloat16, Qwen2.5-0.5B's shapes, one thread of a Zen 4; on two
# threads 0.95 and 0.92). Our own kernel is not slower at 1 row than at 4, so LARGE is not for it.
SMALL, LARGE = Rounding(digits=5), Rounding(least=4, digits=5)


class Decoder:
    """A transformer with rotary positions and grouped queries; norms where the family has them.

    x  ->  x + residual * after(attention(before(x)))  ->  x + residual * after(mlp(before(x)))
    """

    def __init__(self, config: ModelConfig, weights: Weights, context: int = 0) -> None:
        """context: the most positions of a sequence; 0: as many as the model was made for."""
        self.config, self.weights = config, weights
        self.dtype, self.device = weights.embed.dtype, weights.embed.device
        # No LARGE with experts: padding rows would choose experts, whose weights are then read.
        few = weights.nbytes < CACHED or config.experts is not None
        typical = weights.head if config.generates else weights.layers[0].qkv
        rounding = LARGE if typical.slow_below_four and not few else SMALL
        rounds = self.device.type == "cpu" and not typical.any_rows
        self.rounding = replace(rounding if rounds else Rounding(), tile=typical.rows_at_once)
        length = context or config.context
        ropes = list(dict.fromkeys(layer.rope for layer in config.layer_attention if layer.rope))
        rotary: list[RotaryTable] = [
            rotary_tables(rope, config.head_dim, length, self.dtype, self.device) for rope in ropes
        ]
        table_of_layer = [
            ropes.index(each.rope) if each.rope else -1 for each in config.layer_attention
        ]
        self.operators = operators_of(config, self.device, rotary, table_of_layer)
        first = weights.layers[0]
        self.recorded = recorded_steps(self.operators, first.qkv, first.mlp, config.hidden)
        scales = config.scales
        plain = self.device.type == "cpu" and scales.logits == 1 and not scales.logits_cap
        self._kernels = kernels() if plain else None
        # The scale is rounded to the dtype before the product, as in Gemma's reference.
        self.embedding_scale = torch.tensor(scales.embedding, device=self.device).to(self.dtype)

    def forward(self, inputs: Inputs, cache: KVCache) -> Tensor:
        """Compute N tokens and write their keys and values to the cache.

        Returns [N, hidden], before the last norm. On a CPU, x may have a few spare rows after the
        N. Only operations that treat each row separately see them.
        """
        count = len(inputs.tokens)
        spare = self._spare_rows(count)
        x = self.weights.embed(F.pad(inputs.tokens, (0, spare)) if spare else inputs.tokens)
        if self.config.scales.embedding != 1:
            x = x * self.embedding_scale
        step = self.operators.of_step(inputs.positions, inputs.cells, cache)
        if self.recorded is None or spare:
            return self._layers(x, count, step, inputs.attention)
        attention = inputs.attention
        return self.recorded.run(x, cache, lambda x: self._layers(x, count, step, attention))

    def _layers(self, x: Tensor, count: int, step: StepHeads, attention: StepAttention) -> Tensor:
        """Run all layers. x: `count` tokens, then the spare rows."""
        spare, layers, add = len(x) - count, self.weights.layers, self.operators.add_and_norm
        x, normed = add(x, None, NO_NORM, layers[0].before_attention)
        for i, layer in enumerate(layers):
            q = step.take_in(i, layer.qkv(normed)[:count], layer.q_norm, layer.k_norm)
            found = attention.attend(i, q)
            found = layer.out(F.pad(found, (0, 0, 0, spare)) if spare else found)
            x, normed = add(x, found, layer.after_attention, layer.before_mlp)
            following = layers[i + 1].before_attention if i + 1 < len(layers) else NO_NORM
            x, normed = add(x, layer.mlp(normed), layer.after_mlp, following)
        return x[:count]

    def logits(self, x: Tensor) -> Tensor:
        """Logits of R tokens: [R, hidden] -> [R, vocab], float32."""
        return self._scaled(self._head(x).float())

    def likeliest(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """The likeliest next token after each of R tokens, and whether its logits are all finite:
        [R, hidden] -> int64 [R] (the first of equals), bool [R]. None: there is no kernel here."""
        return None if self._kernels is None else self._kernels.likeliest(self._head(x))

    def _head(self, x: Tensor) -> Tensor:
        """[R, hidden] -> [R, vocab] in x's dtype, before the family's factor and soft cap."""
        count = len(x)
        if not (spare := self._spare_rows(count)):
            return self.weights.head(self.hidden(x))
        return self.weights.head(self.hidden(F.pad(x, (0, 0, 0, spare))))[:count]

    def _scaled(self, logits: Tensor) -> Tensor:
        """Apply the family's factor and soft cap."""
        scales = self.config.scales
        if scales.logits != 1:
            logits = logits * scales.logits
        if scales.logits_cap:
            logits = (logits / scales.logits_cap).tanh() * scales.logits_cap
        return logits

    def scores(self, x: Tensor) -> Tensor:
        """Scores of a classifier's labels: [R, hidden] -> [R, labels], float32. For a reranker
        that answers yes or no: the logits of its answer tokens."""
        assert self.weights.score is not None, "this model has no classifier"
        scores = self.weights.score(self.hidden(x)).float()
        return self._scaled(scores) if self.config.answers else scores

    def prepare(self, rows: int, sampled: bool) -> None:
        """Run each matrix product once with this many rows, so that oneDNN on a CPU prepares and
        keeps it. All layers have the first one's shapes. sampled: run the logits' product too."""
        first, config = self.weights.layers[0], self.config
        x = torch.zeros(rows, config.hidden, dtype=self.dtype, device=self.device)
        first.qkv(first.before_attention(x))
        first.out(x.new_zeros(rows, config.heads * config.head_dim))
        first.mlp(first.before_mlp(x))
        if sampled:
            self.logits(x)

    def hidden(self, x: Tensor) -> Tensor:
        """The last norm: [N, hidden] -> what transformers calls last_hidden_state."""
        return self.operators.add_and_norm(x, None, NO_NORM, self.weights.norm)[1]

    def _spare_rows(self, rows: int) -> int:
        return self.rounding.of(rows) - rows


def row_counts(most: int, rounding: Rounding) -> list[int]:
    """The row counts to which steps of up to `most` rows are rounded, ascending."""
    return sorted({rounding.of(rows) for rows in range(1, most + 1)})
