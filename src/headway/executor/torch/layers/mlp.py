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

    To know an expert's tokens, the host waits for the device. Where it may not, every expert
    computes all tokens and the others' results are dropped: count / chosen times the products (4
    for Mixtral 8x7B). A small step is no slower for it where reading all experts is what takes
    the time.
    """

    __slots__ = ("chosen", "experts", "renormalized", "router", "waits")

    def __init__(
        self, router: Linear, experts: tuple[Mlp, ...], chosen: int, renormalized: bool, waits: bool
    ) -> None:
        """waits: whether the host may wait for the router's choice."""
        self.router, self.experts = router, experts
        self.chosen, self.renormalized, self.waits = chosen, renormalized, waits

    def __call__(self, x: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden], n >= 1."""
        weights, chosen = self.router(x).float().softmax(dim=-1).topk(self.chosen, dim=-1)
        if self.renormalized:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        if not self.waits:
            return self._by_all(x, weights, chosen)
        found = torch.zeros_like(x)
        for expert in torch.unique(chosen).tolist():
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            share = weights[rows, places].unsqueeze(1)
            found.index_add_(0, rows, self.experts[expert](x[rows]) * share)
        return found

    def _by_all(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """weights and chosen [n, chosen]."""
        found = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            its = chosen == i
            share = (weights * its).sum(dim=-1, keepdim=True)
            # Not share x result alone: an expert that was not chosen may compute what is infinite.
            found += torch.where(its.any(dim=-1, keepdim=True), expert(x) * share, 0)
        return found
