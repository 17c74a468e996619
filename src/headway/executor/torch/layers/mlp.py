"""What a layer does with each token by itself: one MLP, or a few of many."""

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.executor.torch.config.model_config import Activation
from headway.executor.torch.layers.linear import Linear


class Mlp:
    """down(act(gate(x)) * up(x)) if gated, else down(act(up(x))).

    gate_up  | intermediate | intermediate |  in one matrix, so that x is read once
    """

    __slots__ = ("activation", "down", "gate_up", "gated")

    def __init__(self, gate_up: Linear, down: Linear, gated: bool, activation: Activation) -> None:
        self.gate_up, self.down = gate_up, down
        self.gated, self.activation = gated, activation

    def __call__(self, x: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden], n >= 1."""
        wide = self.gate_up(x)
        if not self.gated:
            return self.down(self._act(wide))
        gate, up = wide.chunk(2, dim=-1)
        return self.down(self._act(gate) * up)

    def _act(self, x: Tensor) -> Tensor:
        return F.silu(x) if self.activation == "silu" else F.gelu(x, approximate="tanh")


class Mixture:
    """A weighted sum of a few experts, chosen for each token (Shazeer et al. 2017; Mixtral 2024).

    Tokens are gathered expert by expert. A token's sum runs over its experts in ascending order
    whoever else is in the batch, so that its answer does not depend on its company.
    """

    __slots__ = ("chosen", "experts", "renormalized", "router")

    def __init__(
        self, router: Linear, experts: tuple[Mlp, ...], chosen: int, renormalized: bool
    ) -> None:
        self.router, self.experts = router, experts
        self.chosen, self.renormalized = chosen, renormalized

    def __call__(self, x: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden], n >= 1."""
        weights, chosen = self.router(x).float().softmax(dim=-1).topk(self.chosen, dim=-1)
        if self.renormalized:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights, found = weights.to(x.dtype), torch.zeros_like(x)
        for expert in torch.unique(chosen).tolist():
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            share = weights[rows, places].unsqueeze(1)
            found.index_add_(0, rows, self.experts[expert](x[rows]) * share)
        return found
